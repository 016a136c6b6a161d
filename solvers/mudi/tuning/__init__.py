"""Finds, by measuring, the batch at which training next to a service is fastest within its SLO (Mudi, M4)."""

from __future__ import annotations

from solvers.mudi.tuning.problem import BatchTrial, MeasuredBatch, Tuning, WrongTuning
from solvers.mudi.tuning.search import BatchTuner

__all__ = ["BatchTrial", "BatchTuner", "MeasuredBatch", "Tuning", "WrongTuning"]
