"""The closed form: on a piecewise linear curve, the smallest SM% for given neighbours is read off one piece."""

from __future__ import annotations

from itertools import pairwise
from math import floor

from solvers.mudi.sharing.problem import Curve, SharingResident

SLACK = 1e-9  # relative, on what is allowed: two ways of writing one product of floats


def least_percent(latency_ms: Curve, most_ms: float) -> float | None:
    """The smallest SM%, not necessarily whole, at which the curve is at or below `most_ms`; None: nowhere."""
    if latency_ms[0][1] <= most_ms:
        return float(latency_ms[0][0])
    for (low, slow), (high, fast) in pairwise(latency_ms):
        if fast <= most_ms:  # slow > most_ms >= fast: the piece falls
            return low + (high - low) * (slow - most_ms) / (slow - fast)
    return None


def least_whole_percent(latency_ms: Curve, most_ms: float) -> int | None:
    """The smallest whole SM% at which the curve, which never rises, is at or below `most_ms`; None: nowhere."""
    percent = least_percent(latency_ms, most_ms)
    if percent is None:
        return None
    below = floor(percent)  # the division rounds: taken where it is fast enough in itself
    return below if value_at(latency_ms, below) <= most_ms else below + 1


def needed_percent(resident: SharingResident, neighbours_pressure: float) -> int | None:
    """The smallest whole SM% at which the resident's batch is fast enough beside this pressure; None: no SM% is."""
    slowed = 1 + resident.sensitivity * neighbours_pressure
    return least_whole_percent(resident.latency_ms, resident.most_exec_ms / slowed * (1 + SLACK))


def value_at(curve: Curve, percent: float) -> float:
    """Linear between the points, flat beyond them."""
    if percent <= curve[0][0]:
        return curve[0][1]
    for (low, at_low), (high, at_high) in pairwise(curve):
        if percent <= high:
            return at_low + (at_high - at_low) * ((percent - low) / (high - low))
    return curve[-1][1]
