"""docs/health.md lists the XIDs that the code knows."""

from __future__ import annotations

from pathlib import Path

from agents.policy.health.xids import LISTED

PAGE = Path(__file__).parents[4] / "docs" / "health.md"


def test_the_page_has_a_row_for_each_listed_xid() -> None:
    rows = [
        line
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and line[2].isdigit() and "deg" not in line
    ]
    assert rows == [f"| {xid.code} | {xid.what} | {xid.weight} | {xid.do} |" for xid in LISTED]
