"""Compiled: a class of GPUs is a box of total pressures, of compute and of bandwidth; what holds within it is linear.

Where no model presses on bandwidth a box is an interval, and has two corners.
"""

from __future__ import annotations

from solvers.compiled import njit
from solvers.planning.fleet.kernels import C16
from solvers.planning.search.arrays import F8, I8

ENDS, CORNERS = 2, 4  # of an interval, and of a box; the lowest and the highest come first


@njit(C16(C16, C16), inner=True)
def take_larger(pressure: complex, other: complex) -> complex:
    """Returns the larger of two pressures, part by part."""
    return complex(max(pressure.real, other.real), max(pressure.imag, other.imag))


@njit(F8(C16, C16, C16), inner=True)
def felt_from(feels: complex, begin: complex, end: complex) -> float:
    """Returns how much more pressure a resident feels at the end, in units of the pressure that it feels most."""
    if feels.real >= feels.imag:
        share = feels.imag / feels.real if feels.real > 0.0 else 0.0
        return (end.real - begin.real) + share * (end.imag - begin.imag)
    return (end.imag - begin.imag) + feels.real / feels.imag * (end.real - begin.real)


@njit(C16(C16, C16, I8), inner=True)
def corner_of(lo: complex, hi: complex, corner: int) -> complex:
    """Returns the pressures at a corner: lowest, highest, the most compute alone, the most bandwidth alone."""
    return complex(hi.real if corner in (1, 2) else lo.real, hi.imag if corner in (1, 3) else lo.imag)


@njit(F8(C16, C16), inner=True)
def price_of(prices: complex, pressure: complex) -> float:
    """Returns what pressures cost at their prices."""
    return prices.real * pressure.real + prices.imag * pressure.imag
