"""Made-up models whose speed is known, and what meters would show of them on whole or shared GPUs.

It knows nothing of how the product estimates: a truth is a function of batch and SMs, and all else follows from it.
While a batch is under way kernels run one after the other, each on some of the SMs, and between them the GPU waits for
its host. An SM is active while a kernel runs on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import cos, exp, expm1, log, pi
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
        """The part of the SMs that have work while a batch is under way on a whole GPU, on average."""

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
    waits: float  # of a batch's time, for the host
    base_gib: float
    gib_of_request: float
    pressure: float
    sensitivity: float

    @staticmethod
    def draw(random: Random) -> WideKernels:
        return WideKernels(
            random.choice((3.0, 8.0, 20.0, 60.0)) * random.uniform(0.8, 1.2), random.uniform(0.12, 0.6),
            random.uniform(0.12, 0.6), random.uniform(0.02, 0.09), random.uniform(0.0, 0.35), random.uniform(0.6, 6.0),
            random.uniform(0.02, 0.15), random.uniform(0.05, 0.5), random.uniform(0.05, 0.3),
        )  # fmt: skip

    def occupied(self, batch: int) -> float:
        return self._width(batch) * (1 - self.waits)

    def batch_ms(self, batch: int, share: float) -> float:
        alone, width = self.first_ms * (1 + self.next_share * (batch - 1)), self._width(batch)
        slower = self.waits + (1 - self.waits) * max(1.0, width / share)
        return alone * slower * (1 + 0.08 * (1 - max(share, width)))

    def _width(self, batch: int) -> float:
        return min(0.95, self.width + self.growth * log(batch, 2))


@dataclass(frozen=True)
class SerialParts(TrueModel):
    """A part that runs on few SMs or waits for the host, and one that is faster with more SMs, by a power."""

    serial_ms: float
    waits: float  # of the serial part, for the host
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
            time * serial, random.uniform(0.0, 0.7), time * (1 - serial), random.uniform(0.75, 1.0),
            random.uniform(1.0, 8.0), random.uniform(0.01, 0.2), random.uniform(0.0, 0.6), random.uniform(0.0, 0.35),
        )  # fmt: skip

    def occupied(self, batch: int) -> float:
        parallel = self.parallel_ms * batch
        return (0.12 * (1 - self.waits) * self.serial_ms + 0.9 * parallel) / (self.serial_ms + parallel)

    def batch_ms(self, batch: int, share: float) -> float:
        narrow = self.waits + (1 - self.waits) * max(1.0, 0.12 / share)
        return self.serial_ms * narrow + self.parallel_ms * batch / float(share**self.exponent)


@dataclass(frozen=True)
class MeasuredStep:
    """What a replica did in a step: the time that it was at work, the SMs that had work, and its latency."""

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
            latency = 1000 * seconds * latency_times(busy)
            return MeasuredStep(busy, busy * model.occupied(batch), latency, batch)
    return None


def latency_times(busy: float) -> float:
    """The time of 99 % of requests, in times of one service, where they come by chance and all take the same.

    Hardly anybody waits, or 99 % wait for at most the one that is being served, or the queue's tail counts.
    """
    if busy <= 0.01:
        return 1.0
    low, high = 1e-9, 50.0
    for _ in range(60):  # the decay of the tail
        middle = (low + high) / 2
        low, high = (middle, high) if busy * expm1(middle) < middle else (low, middle)
    tail = (1 - busy) / (busy * exp(low) - 1)
    return max(2 - 0.01 / busy, 1 + log(100 * tail) / low)


def day_of(random: Random, steps: int, quiet: float) -> list[float]:
    """The load by step, of the highest: a peak a day, and noise."""
    top, sharp = random.uniform(30, 66), random.choice((1, 2, 4))
    shape = [quiet + (1 - quiet) * (0.5 + 0.5 * cos(2 * pi * (step - top) / 96)) ** sharp for step in range(steps)]
    noisy = [value * random.uniform(0.96, 1.04) for value in shape]
    return [value / max(noisy) for value in noisy]
