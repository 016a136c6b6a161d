"""Every case of the table of faults has a test that is found by its number."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.house.tree import Fault, Tree

CASES = range(1, 33)
PLACE = "scripts/house/cases.py"


def a_case_has_a_test_with_its_number(tree: Tree) -> Iterator[Fault]:
    numbers = {
        int(number)
        for source in tree.sources.values()
        if source.is_of_tests and "/test_" in source.name
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", source.text, re.MULTILINE)
        for number in re.findall(r"case_(\d+)(?!\d)", name)
    }
    yield from (Fault(PLACE, 1, f"no test is called test_case_{case}_...") for case in CASES if case not in numbers)


RULES = (a_case_has_a_test_with_its_number,)
