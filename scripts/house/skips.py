"""A test is skipped through tests/support/needs.py alone, which says what would end the skip and fails in CI."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scripts.house.tree import Fault, Tree

PLACE = "tests/support/needs.py"
SKIPS = {"skip", "skipif", "importorskip"}


def a_test_is_skipped_through_its_needs_alone(tree: Tree) -> Iterator[Fault]:
    for source in tree.sources.values():
        if source.is_of_tests and source.name != PLACE:
            for node in source.nodes:
                if isinstance(node, ast.Attribute) and node.attr in SKIPS and ast.unparse(node).startswith("pytest."):
                    yield source.fault(node.lineno, f"{ast.unparse(node)}: {PLACE} has what a test may need")


RULES = (a_test_is_skipped_through_its_needs_alone,)
