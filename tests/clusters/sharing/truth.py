"""Made-up models whose speed is known, in two families, and what meters would show of them on whole or shared GPUs.

It knows nothing of how the product estimates: a truth is a function of batch and SMs, and all else follows from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, log, pi
from random import Random

from solvers.planning.problem import Demand, Profile

BATCHES = (1, 2, 4, 8, 16, 32)
PERCENTS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


class TrueModel(ABC):
    """A model on one GPU type."""

    base_gib: float
    gib_of_request: float
    pressure: float
    sensitivity: float

    @abstractmethod
    def batch_ms(self, batch: int, share: float) -> float:
        """The time of a batch with this share of the SMs."""

    @abstractmethod
    def occupied(self, batch: int) -> float:
        """The part of the SMs that have work while a batch runs on a whole GPU."""

    def memory_gib(self, batch: int) -> float:
        return self.base_gib + batch * self.gib_of_request

    def profile(self, model: str, gpu_type: str) -> Profile:
        curves = {
            batch: tuple((percent, self.batch_ms(batch, percent / 100)) for percent in PERCENTS) for batch in BATCHES
        }
        demand = Demand(pressure=((10, 0.1 * self.pressure), (100, self.pressure)), sensitivity=self.sensitivity)
        return Profile(model, "served", gpu_type, curves, {batch: self.memory_gib(batch) for batch in BATCHES}, demand)


@dataclass(frozen=True)
class WideKernels(TrueModel):
    """Kernels as wide as their batch makes them: fewer SMs than that slow them down, more do hardly help."""

    first_ms: float
    next_share: float  # of the first request's time, for each more in the batch
    width: float  # of the SMs, for one request
    growth: float  # of the width, for twice the batch
    base_gib: float
    gib_of_request: float
    pressure: float
    sensitivity: float

    @staticmethod
    def draw(random: Random) -> WideKernels:
        return WideKernels(
            random.choice((3.0, 8.0, 20.0, 60.0)) * random.uniform(0.8, 1.2), random.uniform(0.12, 0.6),
            random.uniform(0.12, 0.6), random.uniform(0.02, 0.09), random.uniform(0.6, 6.0),
            random.uniform(0.02, 0.15), random.uniform(0.05, 0.5), random.uniform(0.05, 0.3),
        )  # fmt: skip

    def occupied(self, batch: int) -> float:
        return min(0.95, self.width + self.growth * log(batch, 2))

    def batch_ms(self, batch: int, share: float) -> float:
        alone, width = self.first_ms * (1 + self.next_share * (batch - 1)), self.occupied(batch)
        return alone * max(1.0, width / share) * (1 + 0.08 * (1 - max(share, width)))


@dataclass(frozen=True)
class SerialParts(TrueModel):
    """A part that runs on few SMs, and one that is faster with more of them, by a power."""

    serial_ms: float
    parallel_ms: float  # of one request on all SMs
    exponent: float
    base_gib: float
    gib_of_request: float
    pressure: float
    sensitivity: float

    @staticmethod
    def draw(random: Random) -> SerialParts:
        time = random.choice((5.0, 12.0, 40.0)) * random.uniform(0.7, 1.4)
        serial = random.uniform(0.3, 0.8)
        return SerialParts(
            time * serial, time * (1 - serial), random.uniform(0.75, 1.0), random.uniform(1.0, 8.0),
            random.uniform(0.01, 0.2), random.uniform(0.0, 0.6), random.uniform(0.0, 0.35),
        )  # fmt: skip

    def occupied(self, batch: int) -> float:
        parallel = self.parallel_ms * batch
        return (0.12 * self.serial_ms + 0.9 * parallel) / (self.serial_ms + parallel)

    def batch_ms(self, batch: int, share: float) -> float:
        return self.serial_ms * max(1.0, 0.12 / share) + self.parallel_ms * batch / float(share**self.exponent)


@dataclass(frozen=True)
class MeasuredStep:
    """What a replica did in a step: the time its GPU ran something, the SMs that had work, and its latency."""

    busy: float
    active: float
    latency_ms: float
    batch: int


def serve_step(model: TrueModel, rate_per_second: float) -> MeasuredStep | None:
    """A replica alone on its GPU that batches what waits; None: the load is too much for it."""
    for batch in BATCHES[:-1]:
        seconds = model.batch_ms(batch, 1.0) / 1000
        busy = rate_per_second * seconds / batch
        if busy < (0.5 if batch == 1 else 0.75):
            latency = 1000 * seconds * (1 + 0.9 * busy + 1.1 * busy * busy / (1 - busy))
            return MeasuredStep(busy, busy * model.occupied(batch), latency, batch)
    return None


def day_of(random: Random, steps: int, quiet: float) -> list[float]:
    """The load by step, of the highest: a peak a day, and noise."""
    top, sharp = random.uniform(30, 66), random.choice((1, 2, 4))
    shape = [quiet + (1 - quiet) * (0.5 + 0.5 * cos(2 * pi * (step - top) / 96)) ** sharp for step in range(steps)]
    noisy = [value * random.uniform(0.96, 1.04) for value in shape]
    return [value / max(noisy) for value in noisy]


FAMILIES: Mapping[str, type[WideKernels] | type[SerialParts]] = {"wide": WideKernels, "serial": SerialParts}
