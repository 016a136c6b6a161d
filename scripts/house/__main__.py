"""Checks every rule of the house on one reading of the tree, and names all faults with file and line.

Usage: .venv/bin/python -m scripts.house
"""

from __future__ import annotations

import gc
import sys

from scripts.house import (
    accounts,
    cases,
    files,
    loops,
    main_path,
    marks,
    mathematics,
    pages,
    pins,
    plain,
    runbooks,
    skips,
)
from scripts.house.tree import Tree

FAMILIES = (files, accounts, loops, cases, pins, mathematics, runbooks, main_path, marks, skips, plain, pages)
RULES = [rule for family in FAMILIES for rule in family.RULES]


def main() -> int:
    gc.disable()  # half of the time would go into looking for garbage among the parsed modules
    tree = Tree()
    faults = sorted(fault for rule in RULES for fault in rule(tree))
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{len(RULES)} rules hold of {len(tree.sources)} modules and {len(list(pages.pages()))} pages")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
