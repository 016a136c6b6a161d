"""Finds, by measuring, the batch at which training next to a service is fastest within its SLO (Mudi, M4)."""

from __future__ import annotations

from math import exp

import numpy as np

from solvers.mudi.tuning.problem import (
    BatchTrial,
    Measure,
    MeasuredBatch,
    NoBatch,
    Outcome,
    Tuned,
    Tuning,
    TuningEvidence,
    WrongTuning,
)
from solvers.mudi.tuning.search import MAY_MEET_DEVIATIONS, BatchTuner, search

__all__ = [
    "BatchTrial",
    "BatchTuner",
    "Measure",
    "MeasuredBatch",
    "NoBatch",
    "Outcome",
    "Tuned",
    "Tuning",
    "TuningEvidence",
    "WrongTuning",
    "tune",
]


def tune(tuning: Tuning, measure: Measure) -> Outcome:
    """Tries `tuning.evaluations` batches, each chosen from the results so far; the same results, the same answer."""
    tuner = search(tuning, measure)
    possible = tuner.meets(-MAY_MEET_DEVIATIONS)
    least = exp(float(np.min(tuner.bounds()[possible]))) if possible.any() else float("inf")
    certificate = TuningEvidence("GP-LCB", tuple(tuner.trials), least)
    batch = tuner.best()
    if batch is None:
        tried = sorted({trial.batch for trial in tuner.trials})
        fastest = min(tried, key=lambda candidate: (tuner.latency.mean[candidate - 1], candidate))
        slo_ms = tuning.slo_ms * exp(tuner.latency.mean[fastest - 1])
        reason = f"batch {fastest}, the fastest of {len(tried)} tried, takes {slo_ms:.4g} ms; the SLO is"
        return NoBatch(f"{reason} {tuning.slo_ms:g} ms", slo_ms, certificate)
    return Tuned(
        batch=batch,
        iteration_ms=exp(tuner.iteration.mean[batch - 1]),
        latency_ms=tuning.slo_ms * exp(tuner.latency.mean[batch - 1]),
        certificate=certificate,
    )
