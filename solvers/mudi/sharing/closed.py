"""The closed form: given the neighbours, one piece of a piecewise linear curve yields the smallest SM%."""

from __future__ import annotations

from itertools import pairwise
from math import floor

from solvers.mudi.sharing.problem import Curve, SharingResident

SLACK = 1e-9  # relative to the time allowed: the rounding of a product of floats


def least_percent(latency_ms: Curve, most_ms: float) -> float | None:
    """Returns the smallest SM%, not necessarily whole, at which the curve is at most `most_ms`, if there is any."""
    if latency_ms[0][1] <= most_ms:
        return float(latency_ms[0][0])
    for (low, slow), (high, fast) in pairwise(latency_ms):
        if fast <= most_ms:  # slow > most_ms >= fast: the piece falls
            return low + (high - low) * (slow - most_ms) / (slow - fast)
    return None


def least_whole_percent(latency_ms: Curve, most_ms: float) -> int | None:
    """Returns the smallest whole SM% at which the curve, which never rises, is at most `most_ms`, if there is any."""
    percent = least_percent(latency_ms, most_ms)
    if percent is None:
        return None
    below = floor(percent)  # the division rounds, so the SM% below may be fast enough as well
    return below if value_at(latency_ms, below) <= most_ms else below + 1


def find_needed_percent(resident: SharingResident, neighbours_pressure: float) -> int | None:
    """Returns the smallest whole SM% at which the resident's batch is fast enough under this pressure, if any is."""
    slowed = 1 + resident.sensitivity * neighbours_pressure
    return least_whole_percent(resident.latency_ms, resident.most_exec_ms / slowed * (1 + SLACK))


def value_at(curve: Curve, percent: float) -> float:
    """Reads a curve: linear between its points, flat beyond them."""
    if percent <= curve[0][0]:
        return curve[0][1]
    for (low, at_low), (high, at_high) in pairwise(curve):
        if percent <= high:
            return at_low + (at_high - at_low) * ((percent - low) / (high - low))
    return curve[-1][1]
