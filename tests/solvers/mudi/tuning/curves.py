"""True curves over batches 1..256, drawn from a seed, and a device that measures them with noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from solvers.mudi.tuning import MeasuredBatch

Floats = NDArray[np.float64]
BATCH = np.arange(1, 257.0)
DOUBLINGS = np.log2(BATCH)
NOISE = 0.05


@dataclass(frozen=True)
class Curves:
    """What a perfect measurement would show, by batch from 1."""

    iteration_ms: Floats
    latency_ms: Floats
    slo_ms: float

    def best_batch(self) -> int | None:
        """The batch of least iteration time under the SLO, by trying every one. None: no batch meets it."""
        right = [batch for batch in range(1, len(self.iteration_ms) + 1) if self.latency_ms[batch - 1] <= self.slo_ms]
        return min(right, key=lambda batch: (self.iteration_ms[batch - 1], batch), default=None)

    def regret(self, batch: int) -> float:
        """How much longer an iteration takes than under the best batch, relatively; infinite if the SLO is missed."""
        best = self.best_batch()
        if best is None or self.latency_ms[batch - 1] > self.slo_ms:
            return inf
        return float(self.iteration_ms[batch - 1] / self.iteration_ms[best - 1] - 1)


class NoisyDevice:
    """Measures what it is asked to, 5 % off, and remembers what it was asked."""

    def __init__(self, curves: Curves, seed: int) -> None:
        self.curves, self.draws = curves, np.random.default_rng(seed)
        self.asked: list[int] = []

    def measure(self, batch: int) -> MeasuredBatch:
        self.asked.append(batch)
        off = np.exp(NOISE * self.draws.standard_normal(2))
        return MeasuredBatch(
            float(self.curves.iteration_ms[batch - 1] * off[0]), float(self.curves.latency_ms[batch - 1] * off[1])
        )


def curves(seed: int) -> Curves:
    """Of one of five kinds, in turn."""
    draws = np.random.default_rng(seed)
    return KINDS[seed % len(KINDS)](draws)


def leftover(draws: np.random.Generator) -> Curves:
    """Training has the SM% that the service leaves: the larger its batch, the fewer it needs, the longer it waits."""
    fixed_ms, each_ms = draws.uniform(2, 10), draws.uniform(0.2, 1.5)
    knee_percent, bend = draws.uniform(15, 60), draws.uniform(0.02, 0.06)
    rate = draws.uniform(0.1, 0.7) / each_ms
    percents = np.arange(5, 96.0)
    slowed = 1 + bend * np.maximum(0, knee_percent - percents) + 0.001 * (95 - percents)
    exec_ms = (fixed_ms + each_ms * BATCH)[:, None] * slowed
    keeps_up = rate * exec_ms / BATCH[:, None] <= 0.9
    given = np.where(keeps_up.any(axis=1), keeps_up.argmax(axis=1), len(percents) - 1)
    taken = exec_ms[np.arange(256), given]
    overload = np.maximum(1, rate * taken / BATCH / 0.9)
    latency_ms = (0.5 * BATCH / rate + 2 * taken) * overload**3
    iteration_ms = 1e4 / (100 - percents[given]) ** draws.uniform(0.4, 1)
    return Curves(iteration_ms, latency_ms, float(np.quantile(latency_ms, draws.uniform(0.1, 0.9))))


def straight(draws: np.random.Generator) -> tuple[Floats, float]:
    """A latency that is linear in the batch, and an SLO that some batch of 4..256 just meets."""
    latency_ms = draws.uniform(1, 10) + draws.uniform(0.1, 2) * BATCH
    return latency_ms, float(latency_ms[int(2 ** draws.uniform(2, 8)) - 1] * draws.uniform(1, 1.1))


def valley(draws: np.random.Generator) -> Curves:
    lowest = draws.uniform(0, 8)
    iteration = 1 + draws.uniform(0.05, 0.5) * np.abs(DOUBLINGS - lowest) ** draws.uniform(1.2, 2)
    return Curves(iteration * draws.uniform(10, 1000), *straight(draws))


def falling(draws: np.random.Generator) -> Curves:
    iteration = draws.uniform(0.5, 2) + draws.uniform(2, 20) / BATCH ** draws.uniform(0.5, 1)
    return Curves(iteration * draws.uniform(10, 1000), *straight(draws))


def saw(draws: np.random.Generator) -> Curves:
    """A valley with teeth: every 32 requests one more wave of blocks."""
    teeth = 1 + draws.uniform(0.02, 0.06) * (BATCH % 32) / 32
    iteration = (1 + draws.uniform(0.05, 0.3) * (DOUBLINGS - draws.uniform(2, 7)) ** 2) * teeth
    return Curves(iteration * draws.uniform(10, 1000), *straight(draws))


def queued(draws: np.random.Generator) -> Curves:
    """Small batches queue, large ones take long: the SLO cuts off both ends."""
    iteration = 1 + draws.uniform(0.2, 1) * BATCH / 256 + draws.uniform(1, 10) / BATCH
    latency_ms = draws.uniform(20, 200) / BATCH**0.7 + draws.uniform(1, 10) + draws.uniform(0.1, 1) * BATCH
    slo_ms = float(np.quantile(latency_ms, draws.uniform(0.1, 0.9)))
    return Curves(iteration * draws.uniform(10, 1000), latency_ms, slo_ms)


KINDS: tuple[Callable[[np.random.Generator], Curves], ...] = (leftover, valley, falling, saw, queued)
