"""The batching problem: the batch of each model on one GPU, at given SM% (InSS, problem (4))."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

MOST_BATCH = 32  # InSS searches 1..32


class WrongBatching(ValueError):
    """A problem with an invalid number or a repeated name."""


@dataclass(frozen=True, slots=True)
class BatchOption:
    """The predicted latency, throughput and memory of one batch size."""

    task_latency_ms: float  # T, by InSS's eq. (2)
    throughput_per_second: float  # h = batch / execution time
    memory_gib: float

    def __post_init__(self) -> None:
        for name, value in (
            ("taskLatencyMs", self.task_latency_ms),
            ("throughputPerSecond", self.throughput_per_second),
            ("memoryGib", self.memory_gib),
        ):
            if not (isfinite(value) and value >= 0):
                raise WrongBatching(f"{name} {value:g} is not a finite number of 0 or more")


@dataclass(frozen=True, slots=True)
class BatchedModel:
    """A model on the GPU; `options` belong to batches 1, 2, 3, and so on."""

    name: str
    slo_ms: float
    rate_per_second: float
    options: tuple[BatchOption, ...]
    batch: int = 1  # its current batch; InSS's listing starts from 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.options) <= MOST_BATCH:
            raise WrongBatching(f"model {self.name} has {len(self.options)} batches; 1..{MOST_BATCH} are allowed")
        if not 1 <= self.batch <= len(self.options):
            raise WrongBatching(f"model {self.name}: batch {self.batch} is outside 1..{len(self.options)}")
        for name, value in (("sloMs", self.slo_ms), ("ratePerSecond", self.rate_per_second)):
            if not (isfinite(value) and value > 0):
                raise WrongBatching(f"model {self.name}: {name} {value:g} is not a finite number over 0")

    def at(self, batch: int) -> BatchOption:
        return self.options[batch - 1]


@dataclass(frozen=True, slots=True)
class BatchingProblem:
    """The models on one GPU, in the order in which batches are decided."""

    memory_gib: float
    models: tuple[BatchedModel, ...]

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        for name in sorted(set(names)):
            if names.count(name) > 1:
                raise WrongBatching(f"model {name} occurs {names.count(name)} times")
        if not (isfinite(self.memory_gib) and self.memory_gib > 0):
            raise WrongBatching(f"memoryGib {self.memory_gib:g} is not a finite number over 0")
