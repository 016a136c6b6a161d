"""How wrong our predictions are on public measurements, out of sample, beside baselines computed in the same run."""

from __future__ import annotations

from benchmarks.accuracy.accuracy_row import AccuracyRow

__all__ = ["TOPICS", "AccuracyRow"]

# Each is a module of this package with `rows(data: Path) -> list[AccuracyRow]`.
TOPICS: tuple[str, ...] = ("latency",)
