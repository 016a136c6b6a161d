"""Numbers are read as people and tools write them, and nothing else is taken for one."""

from __future__ import annotations

from math import isnan

import pytest

from app.manifests.decimals import read_decimal


@pytest.mark.parametrize("text", ["4", "-4.", ".5", "+1e3", "2.5E-2"])
def test_decimals_are_read(text: str) -> None:
    assert read_decimal(text) == float(text)


@pytest.mark.parametrize("text", ["", "4_0", "inf", "nan", "0x10", " 4", "4 ", "4,5", "٤", "1e", "four"])
def test_other_texts_are_no_number(text: str) -> None:
    assert isnan(read_decimal(text))
