"""The truth about a tuned batch, for who knows the curves: by trying every batch, without noise."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf


def best_batch(slo_ms: float, iteration_ms: Sequence[float], latency_ms: Sequence[float]) -> int | None:
    """The batch of least iteration time under the SLO; curves start at batch 1. None: no batch meets it."""
    best = None
    for batch in range(1, len(iteration_ms) + 1):
        if latency_ms[batch - 1] > slo_ms:
            continue
        if best is None or iteration_ms[batch - 1] < iteration_ms[best - 1]:
            best = batch
    return best


def regret(slo_ms: float, iteration_ms: Sequence[float], latency_ms: Sequence[float], batch: int) -> float:
    """How much longer an iteration takes than under the best batch, relatively; infinite where the SLO is missed."""
    best = best_batch(slo_ms, iteration_ms, latency_ms)
    if best is None or latency_ms[batch - 1] > slo_ms:
        return inf
    return iteration_ms[batch - 1] / iteration_ms[best - 1] - 1
