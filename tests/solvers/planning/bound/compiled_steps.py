"""Loops that Python may call, around inner ones of rates rounded in steps."""

from __future__ import annotations

from solvers.compiled import njit
from solvers.planning.bound.step_lines import step_line as inner_line
from solvers.planning.fleet.grids import Floats
from solvers.planning.search.arrays import F1, F8
from solvers.planning.step_prices import rounded as inner_rounded


@njit(F8(F8, F8, F8))
def rounded(rate: float, length: float, rise: float) -> float:
    """Returns the steps that a rate fills."""
    return inner_rounded(rate, length, rise)


@njit((F8, F8, F8, F8, F8, F8, F1))
def step_line(
    length: float, rise: float, least: float, most: float, rate_lo: float, rate_hi: float, ends: Floats
) -> None:
    """Writes the ends of a line that no rounded rate exceeds."""
    inner_line(length, rise, least, most, rate_lo, rate_hi, ends)
