"""What batch makes training beside a service fastest, when a batch can only be tried? (Mudi, adaptive batching)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias


class WrongTuning(ValueError):
    """A number that means nothing here."""


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """What one batch did, tried for a while."""

    iteration_ms: float  # of the training beside the service
    latency_ms: float  # of the service, at its SLO's percentile

    def __post_init__(self) -> None:
        over_zero("iterationMs", self.iteration_ms)
        over_zero("latencyMs", self.latency_ms)


Measure: TypeAlias = Callable[[int], MeasuredBatch]  # the caller's: what is tried, and how, is not decided here


@dataclass(frozen=True, slots=True)
class Tuning:
    """What to look for, and how far a measurement can be trusted."""

    slo_ms: float
    most_batch: int = 256
    noise: float = 0.05  # of a measurement: relative, one standard deviation
    evaluations: int = 24  # Mudi needs fewer than 25

    def __post_init__(self) -> None:
        over_zero("sloMs", self.slo_ms)
        over_zero("noise", self.noise)
        for name, value in (("mostBatch", self.most_batch), ("evaluations", self.evaluations)):
            if value < 1:
                raise WrongTuning(f"{name} {value} is below 1")


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """One measurement."""

    batch: int
    measured: MeasuredBatch


@dataclass(frozen=True, slots=True)
class TuningEvidence:
    """How the batch was found. The curves are measured, not given: no bound is known, only what is believed."""

    method: str
    trials: tuple[BatchTrial, ...]
    believed_least_ms: float  # no batch that may meet the SLO is believed to be faster, at the search's confidence


@dataclass(frozen=True, slots=True)
class Tuned:
    """The batch, and what it is believed to do after all that was measured."""

    batch: int
    iteration_ms: float
    latency_ms: float
    certificate: TuningEvidence


@dataclass(frozen=True, slots=True)
class NoBatch:
    """No batch tried is believed to meet the SLO."""

    reason: str
    least_slo_ms: float  # believed to be met by the fastest batch tried
    certificate: TuningEvidence


Outcome: TypeAlias = Tuned | NoBatch


def over_zero(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise WrongTuning(f"{name} {value:g} is not a finite number over 0")
