"""The table of capabilities in CONTRIBUTING.md names tests that there are, and every test of the tour."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.forked import ROOT

ROW = re.compile(r"^\| (.+) \| `(test_\w+::test_\w+)(?:\[\w+\])?` \|$", re.MULTILINE)


def test_the_table_of_at_least_25_capabilities_names_every_test_of_the_tour() -> None:
    there = {
        f"{path.stem}::{node.name}"
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != Path(__file__).name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    rows = ROW.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert len({capability for capability, _ in rows}) == len(rows) >= 25
    assert {test for _, test in rows} == there
