"""The errors of our predictions on public measurements, out of sample, beside baselines computed in the same run."""

from __future__ import annotations

from lab.accuracy.accuracy_row import AccuracyRow

__all__ = ["LLM_TOPICS", "TOPICS", "AccuracyRow"]

# Each is a module of this package with `rows(data: Path) -> list[AccuracyRow]`.
TOPICS: tuple[str, ...] = ("bursts", "factors", "forecast", "interference", "latency")
LLM_TOPICS: tuple[str, ...] = ("llm.inferno", "llm.logs", "llm.predictor", "llm.silicon")  # of `--llm`
