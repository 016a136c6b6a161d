"""The tuning problem: which batch trains fastest next to a service, if a batch can only be tried? (Mudi, M4)"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite


class WrongTuning(ValueError):
    """A tuning or a measurement with an invalid number."""


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """The times measured while one batch was tried."""

    iteration_ms: float  # of the training next to the service
    latency_ms: float  # of the service, at its SLO's percentile

    def __post_init__(self) -> None:
        check_above_zero("iterationMs", self.iteration_ms)
        check_above_zero("latencyMs", self.latency_ms)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The SLO, the range of batches, the noise of a measurement, and how many measurements are allowed."""

    slo_ms: float
    most_batch: int = 256
    noise: float = 0.05  # of a measurement: relative, one standard deviation
    evaluations: int = 24  # Mudi needs fewer than 25
    batches: tuple[int, ...] = ()  # that may be tried, rising, up to most_batch; empty: all

    def __post_init__(self) -> None:
        check_above_zero("sloMs", self.slo_ms)
        check_above_zero("noise", self.noise)
        for name, value in (("mostBatch", self.most_batch), ("evaluations", self.evaluations)):
            if value < 1:
                raise WrongTuning(f"{name} {value} is below 1")
        if self.batches and (list(self.batches) != sorted(set(self.batches)) or self.batches[-1] > self.most_batch):
            raise WrongTuning(f"batches {self.batches} do not rise up to mostBatch {self.most_batch}")
        if self.batches and self.batches[0] < 1:
            raise WrongTuning(f"batch {self.batches[0]} is below 1")


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """One measurement."""

    batch: int
    measured: MeasuredBatch


def check_above_zero(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise WrongTuning(f"{name} {value:g} is not a finite number over 0")
