"""The time of one batch: measured over batch and SM%, stretched by what the neighbours press and by a lower clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Points: TypeAlias = Sequence[tuple[int, float]]  # (SM%, value), SM% rising
Floats: TypeAlias = NDArray[np.float64]

SM_PERCENTS = np.arange(101)


def by_sm(points: Points) -> Floats:
    """A measured curve at 0..100 SM%: linear between its points, infinite outside them, where nothing was measured."""
    at, values = zip(*points, strict=True)
    return np.asarray(np.interp(SM_PERCENTS, at, values, left=np.inf, right=np.inf))


def flat_by_sm(points: Points) -> Floats:
    """A curve at 0..100 SM% that goes on flat outside its points, as pressure and power do."""
    at, values = zip(*points, strict=True)
    return np.asarray(np.interp(SM_PERCENTS, at, values))


def execs_ms(latency_ms: Mapping[int, Points]) -> tuple[list[int], Floats]:
    """The batches of a profile, rising, and for each its exec at 0..100 SM%, alone and at the highest clock."""
    batches = sorted(latency_ms)
    return batches, np.array([by_sm(latency_ms[batch]) for batch in batches])


def slowdown(sensitivity: float, pressure: float | Floats, clock_ratio: float = 1.0, exponent: float = 1.0) -> Floats:
    """What an exec is multiplied by under the neighbours' pressures, summed up, at highest clock / clock."""
    return np.asarray((1.0 + sensitivity * np.asarray(pressure)) * clock_ratio**exponent)
