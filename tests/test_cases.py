"""Every case of the table of faults has a test that is found by its number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CASES = range(1, 33)
NUMBERS = frozenset(
    int(number)
    for path in Path(__file__).parent.rglob("test_*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    for number in re.findall(r"case_(\d+)(?!\d)", name)
)


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_a_test_that_carries_its_number(case: int) -> None:
    assert case in NUMBERS
