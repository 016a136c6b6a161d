"""OLTunes' affinity of models that share a GPU: complementary needs of compute and memory (9), and variants (11)."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Ratios = TypeVar("Ratios", float, NDArray[np.float64])

THRESHOLD_AFFINITY = 70.0  # of 100: what a model needs with those that are there
MOST_RATIO = 10.0
BOTH_HIGH, BOTH_LOW, HIGH_AND_LOW = 0.0, 50.0, 100.0


def compute_to_memory(curve: Sequence[tuple[int, float]]) -> float:
    """Returns a stand-in for the ratio of compute- to memory-intensive kernels (1), from times over SM%.

    The part of the time that halves when SMs double computes, the rest waits for memory; the paper counts kernels with
    a profiler. It is read from half the SMs to all.
    """
    most, least_ms = curve[-1]
    half_ms = float(np.interp(most / 2, [sm for sm, _ in curve], [ms for _, ms in curve]))
    computing = min(max(log2(half_ms / least_ms), 0.0), 1.0)
    return min(MOST_RATIO, computing / max(1 - computing, 1e-9))


def workload_affinity(ratio: float, other: Ratios) -> Ratios:
    """Returns (9), 50 to 100: the sigmoid of the gap between a ratio and another, or each of others."""
    found: Ratios = 100 / (1 + np.exp(-np.abs(ratio - other)))
    return found


def variant_affinity(is_high: bool, other_is_high: bool) -> float:
    """Returns (11): a high and a low variant suit each other best."""
    if is_high != other_is_high:
        return HIGH_AND_LOW
    return BOTH_HIGH if is_high else BOTH_LOW
