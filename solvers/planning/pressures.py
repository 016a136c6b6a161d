"""Pressures on what the residents of a GPU share, compute and bandwidth: one complex number, compute + bandwidth i.

Whatever adds pressures up, takes one from a sum or interpolates does the same to both, in plain and in compiled code.
A plain number presses on compute alone. `solvers.planning.fleet.kernels` compiles these functions for loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, overload

if TYPE_CHECKING:  # the API reads problems without the solvers' libraries
    import numpy as np
    from numpy.typing import NDArray

Pressure: TypeAlias = complex
Pressures: TypeAlias = "NDArray[np.complex128]"
PressureCurve: TypeAlias = tuple[tuple[int, Pressure], ...]  # (SM%, pressure), SM% rising


def slow_by(sensitivity: Pressure, pressure: Pressure) -> float:
    """Returns by how much more than its time alone a resident takes beside neighbours of this pressure."""
    return sensitivity.real * pressure.real + sensitivity.imag * pressure.imag


def slow_each(sensitivities: Pressures, pressures: Pressures) -> NDArray[np.float64]:
    """Returns the same of many residents."""
    found: NDArray[np.float64] = sensitivities.real * pressures.real + sensitivities.imag * pressures.imag
    return found


def most_felt(sensitivity: Pressure) -> float:
    """Returns the larger sensitivity: strangers are taken to press on what slows a resident most."""
    return max(sensitivity.real, sensitivity.imag)


def add_strangers(sensitivity: Pressure, pressure: Pressure, outside: float) -> Pressure:
    """Returns the pressure on a resident together with that of strangers, which slow it by a factor of their own.

    (1 + s a)(1 + s b) = 1 + s (a + b (1 + s a)).
    """
    if outside == 0.0:
        return pressure
    more = outside * (1.0 + sensitivity.real * pressure.real + sensitivity.imag * pressure.imag)
    if sensitivity.real >= sensitivity.imag:
        return complex(pressure.real + more, pressure.imag)
    return complex(pressure.real, pressure.imag + more)


def subtract_own(pressure: Pressure, own: Pressure) -> Pressure:
    """Returns what is left of a pressure without one's own."""
    return complex(max(pressure.real - own.real, 0.0), max(pressure.imag - own.imag, 0.0))


def is_within(pressure: Pressure, most: Pressure, more: float) -> bool:
    """Tells if neither part of a pressure exceeds the most by more than this."""
    return pressure.real <= most.real + more and pressure.imag <= most.imag + more


@overload
def add_parts(pressure: Pressure) -> float: ...
@overload
def add_parts(pressure: Pressures) -> NDArray[np.float64]: ...
def add_parts(pressure: Pressure | Pressures) -> float | NDArray[np.float64]:
    """Returns the pressure on compute and on bandwidth together."""
    return pressure.real + pressure.imag
