"""The one form of a number, in manifests, on the command line and in CSV files."""

from __future__ import annotations

import argparse

import pytest

from app.manifests.numbers import finite_number
from cli.arguments import duration, finite, not_negative, part, positive


@pytest.mark.parametrize(("text", "value"), [("40", 40.0), (" -.5 ", -0.5), ("+1.", 1.0), ("2.5e-3", 0.0025)])
def test_a_number_has_digits_a_point_and_an_exponent(text: str, value: float) -> None:
    assert finite_number(text) == value


@pytest.mark.parametrize("text", ["", "4_0", "1e1_0", "nan", "infinity", "1e999", "٤", "0x10", "1,5", "4 0"])
def test_what_only_python_takes_for_a_number_is_none(text: str) -> None:
    assert finite_number(text) is None


def test_flags_take_numbers_in_this_form_alone() -> None:
    for read in (finite, positive, not_negative, part):
        assert read("0.4") == 0.4
        for text in ("0_1", "nan", "٤", ""):
            with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not allowed: a "):
                read(text)
    assert duration("15m") == 900
    with pytest.raises(argparse.ArgumentTypeError, match="a time like 90s"):
        duration("٤s")
