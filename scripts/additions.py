"""Counts the rooms that an addition touches: the folders of the product whose code names its nearest example.

Usage: .venv/bin/python -m scripts.additions
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from scripts.house.tree import Tree

FOLDERS = ("agents/", "app/", "benchmarks/", "cli/", "clusters/", "migrations/", "simulation/", "solvers/")
OTHER_CODE = {".html", ".lua", ".sql", ".toml", ".yaml"}  # templates and tables name things, too


@dataclass(frozen=True, slots=True)
class AdditionExample:
    """What somebody may add, and how the code names the nearest thing that is there already."""

    what: str
    pattern: str


ADDITIONS = (
    AdditionExample("a planner", r"oltunes"),
    AdditionExample("an objective term", r"carbon"),
    AdditionExample("a GPU's quirk", r"(?<![A-Za-z])(?:MIG|mig)(?![A-Za-z])"),
    AdditionExample("a runtime", r"(?i:docker)"),
    AdditionExample("a page of the console", r"what_if"),
)


def find_files(tree: Tree, pattern: str) -> Iterator[str]:
    """Yields the files of the product whose name or code has the pattern; comments and docstrings are no code."""
    wanted = re.compile(pattern)
    for source in tree.product:
        if source.name.startswith(FOLDERS) and wanted.search(f"{source.name} {source.text}"):
            code = ast.unparse(_WithoutDocstrings().visit(ast.parse(source.text)))
            if wanted.search(f"{source.name if code else ''} {code}"):
                yield source.name
    for path in (path for folder in FOLDERS for path in tree.files(f"{folder}**/*") if path.suffix in OTHER_CODE):
        if wanted.search(f"{path.name} {path.read_text()}"):
            yield tree.name_of(path)


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def main() -> int:
    tree = Tree()
    for addition in ADDITIONS:
        rooms: dict[str, int] = defaultdict(int)
        for name in find_files(tree, addition.pattern):
            rooms[str(PurePath(name).parent)] += 1
        print(f"{addition.what}: {sum(rooms.values())} files in {len(rooms)} folders")
        for room, count in sorted(rooms.items()):
            print(f"  {room} ({count})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
