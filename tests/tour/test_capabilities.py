"""The table of capabilities names tests that there are, and every test of the tour."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tour.capabilities import CAPABILITIES


def test_the_table_of_at_least_25_capabilities_names_every_test_of_the_tour() -> None:
    there = {
        f"{path.stem}::{node.name}"
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != Path(__file__).name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    named = {test.partition("[")[0] for test in CAPABILITIES.values()}
    assert len(CAPABILITIES) >= 25
    assert named == there
