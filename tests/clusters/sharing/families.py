"""Four families of draws. How wide the interval must be was learned from the first two, and judged by the third.

The fourth has other seeds, models and servers, and changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, exp
from random import Random

from tests.clusters.sharing.batching import TiledLayers, TrueServer, serve_alike, serve_waiting
from tests.clusters.sharing.truth import SerialParts, TrueModel, WideKernels


@dataclass(frozen=True)
class Kernel:
    """One of the kernels that a batch runs."""

    first_ms: float  # of one request, with all SMs
    next_share: float  # of this time, for each more request in the batch
    width: float  # of the SMs, for one request
    growth: float  # its width is by this power of the batch
    needed: float  # of its width: with so many SMs it draws all that memory gives
    waves: int  # of blocks, with as many SMs as it fills: with fewer there are more, and each is whole

    def ms(self, batch: int) -> float:
        return self.first_ms * (1 + self.next_share * (batch - 1))

    def filled(self, batch: int) -> float:
        return min(1.0, self.width * float(batch**self.growth))

    def slower(self, batch: int, share: float) -> float:
        return max(1.0, ceil(self.waves * self.filled(batch) * self.needed / share - 1e-9) / self.waves)


@dataclass(frozen=True)
class ManyKernels(TrueModel):
    """Kernels of several widths, some of them bound by memory, with the host's work between them."""

    kernels: tuple[Kernel, ...]
    host_ms: float
    base_gib: float
    gib_of_request: float
    pressure: float
    sensitivity: float

    @staticmethod
    def draw(random: Random) -> ManyKernels:
        time = min(150.0, max(2.0, 15.0 * exp(random.gauss(0, 0.9))))
        waits = random.uniform(0.05, 0.45)
        parts = [random.expovariate(1.0) for _ in range(random.randrange(3, 8))]
        kernels = []
        for part in parts:
            is_bound = random.random() < 0.3
            kernels.append(
                Kernel(
                    time * (1 - waits) * part / sum(parts), random.uniform(0.05, 0.9),
                    random.uniform(0.7, 1.0) if is_bound else 0.04 + 0.96 * random.random() ** 1.3,
                    random.uniform(0.0, 0.4), random.uniform(0.3, 0.8) if is_bound else 1.0, random.randrange(2, 13),
                )
            )  # fmt: skip
        return ManyKernels(
            tuple(kernels), time * waits, random.uniform(0.5, 14.0), random.uniform(0.01, 0.3),
            random.uniform(0.0, 0.7), random.uniform(0.0, 0.4),
        )  # fmt: skip

    def occupied(self, batch: int) -> float:
        return sum(each.ms(batch) * each.filled(batch) for each in self.kernels) / self.batch_ms(batch, 1.0)

    def batch_ms(self, batch: int, share: float) -> float:
        host = self.host_ms * (1 + 0.1 * (batch - 1))
        return host + sum(each.ms(batch) * each.slower(batch, share) for each in self.kernels)


@dataclass(frozen=True)
class Family:
    """How estates are drawn, and of which models."""

    draw_model: Callable[[Random], TrueModel]
    pools: tuple[int, ...]
    slots: tuple[int, ...]  # of a GPU
    replicas: tuple[int, ...]
    draw_use: Callable[[Random], float]  # of a replica, at its peak, on a whole GPU
    draw_quiet: Callable[[Random], float]  # the least load, of the highest
    draw_slack: Callable[[Random], float]  # of the SLO, in times of one request
    latency_bounds: float  # of histograms' buckets: each is so many times the one before; 1: times are known
    most_width: float  # of the interval at the median, of 100 that are paid
    draw_server: Callable[[Random, TrueModel], TrueServer] = serve_alike
    first_seed: int = 0


def _usual(draw_model: Callable[[Random], TrueModel], most_width: float) -> Family:
    return Family(
        draw_model, (1, 2, 2), (1, 1, 1, 4), (1, 2, 2, 3, 4, 6, 9), lambda random: random.uniform(0.08, 0.65),
        lambda random: random.uniform(0.1, 0.7), lambda random: random.uniform(2.6, 12.0), 1.0, most_width,
    )  # fmt: skip


FAMILIES: Mapping[str, Family] = {
    "wide": _usual(WideKernels.draw, 21.0),
    "serial": _usual(SerialParts.draw, 27.0),
    "kernels": Family(
        ManyKernels.draw, (2,), (1, 1, 2), (1, 1, 2, 3, 5, 8, 12),
        lambda random: min(0.7, 0.18 * exp(random.gauss(0, 0.7))), lambda random: random.uniform(0.02, 0.8),
        lambda random: exp(random.uniform(0.6, 3.2)), 1.5, 30.0,
    ),
    "layers": Family(
        TiledLayers.draw, (1, 2), (1, 1, 1, 2), (1, 1, 2, 3, 4, 6, 10),
        lambda random: 0.05 + 0.75 * random.betavariate(1.6, 3.0), lambda random: random.uniform(0.05, 0.6),
        lambda random: exp(random.uniform(1.0, 3.0)), 1.0, 21.0, serve_waiting, 40_000,
    ),
}  # fmt: skip
