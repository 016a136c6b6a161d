"""Reads latency histograms with the edges that reports use."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from agents.contract.fields import LATENCY_EDGES_MS


def count_within(counts: Sequence[float], latency_ms: float) -> float:
    """Returns how many answers were at most this slow, assuming an even spread within a bucket."""
    edge = bisect_left(LATENCY_EDGES_MS, latency_ms)
    inside = float(sum(counts[:edge]))
    if edge < min(len(counts), len(LATENCY_EDGES_MS)):
        below = LATENCY_EDGES_MS[edge - 1] if edge else 0.0
        inside += counts[edge] * (latency_ms - below) / (LATENCY_EDGES_MS[edge] - below)
    return inside


def count_within_at_best(counts: Sequence[float], latency_ms: float) -> float:
    """Returns how many answers may have been at most this slow: all others certainly were slower."""
    return float(sum(counts[: bisect_left(LATENCY_EDGES_MS, latency_ms) + 1]))


def quantile_ms(counts: Sequence[float], percentile: float) -> float | None:
    """Returns the latency at a percentile, linear within its bucket; None without any counts."""
    total = sum(counts)
    wanted, reached = total * percentile / 100, 0.0
    for edge, count in enumerate(counts):
        if count and reached + count >= wanted:
            if edge >= len(LATENCY_EDGES_MS):
                break
            below = LATENCY_EDGES_MS[edge - 1] if edge else 0.0
            return below + (LATENCY_EDGES_MS[edge] - below) * (wanted - reached) / count
        reached += count
    return LATENCY_EDGES_MS[-1] if total else None


def add(into: list[int], counts: Sequence[int]) -> None:
    """Adds counts to a histogram, which grows as needed."""
    if len(counts) > len(into):
        into.extend([0] * (len(counts) - len(into)))
    for edge, count in enumerate(counts):
        if count:
            into[edge] += count
