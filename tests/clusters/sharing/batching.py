"""A made-up server that takes what waits as one batch, request by request, and models whose layers run in waves.

As Triton's dynamic batcher does: a batch starts once the GPU is free, and it is full or its oldest request has waited
for as long as it may.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import ceil, exp, floor, log
from random import Random
from typing import Protocol

from tests.clusters.sharing.truth import MeasuredStep, TrueModel, serve_step

REQUESTS = 1000
GRID = 0.2  # between the logarithms of the rates that are tried: between these, figures are interpolated
MOST_BUSY = 0.93
SMS = 108


class TrueServer(Protocol):
    """Returns what a replica alone on its GPU does at a rate; None: the load is too much for it."""

    def __call__(self, rate_per_second: float) -> MeasuredStep | None: ...


def serve_alike(_random: Random, model: TrueModel) -> TrueServer:
    """Batches of a step are all of one size."""
    return partial(serve_step, model)


def serve_waiting(random: Random, model: TrueModel) -> TrueServer:
    """Batches are of what waits: a third of the servers wait for more, and some take one at a time."""
    most = random.choice((1, 4, 8, 16, 32))
    patience = random.uniform(0.1, 0.8) if random.random() < 0.35 else 0.0
    return BatchingServer(model, most, patience * model.batch_ms(1, 1.0) / 1000, random.randrange(2**32))


@dataclass(frozen=True)
class BatchingServer:
    """Serves requests that come by chance."""

    model: TrueModel
    most: int  # requests in a batch
    patience_seconds: float
    seed: int
    seen: dict[int, MeasuredStep | None] = field(default_factory=dict)

    def __call__(self, rate_per_second: float) -> MeasuredStep | None:
        place = log(rate_per_second) / GRID
        low, part = floor(place), place - floor(place)
        first, second = self._serve_at(low), self._serve_at(low + 1)
        if not first or not second:
            return None
        busy, active, latency_ms = (
            (1 - part) * a + part * b for a, b in zip(_figures(first), _figures(second), strict=True)
        )
        return MeasuredStep(busy, active, latency_ms, max(first.batch, second.batch))

    def _serve_at(self, place: int) -> MeasuredStep | None:
        if place not in self.seen:
            self.seen[place] = self._serve(exp(place * GRID), Random(self.seed * 1009 + place))
        return self.seen[place]

    def _serve(self, rate: float, random: Random) -> MeasuredStep | None:
        seconds = [0.0] + [self.model.batch_ms(size, 1.0) / 1000 for size in range(1, self.most + 1)]
        if rate * min(time / size for size, time in enumerate(seconds) if size) > MOST_BUSY:
            return None
        came, now = list[float](), 0.0
        for _ in range(REQUESTS):
            now += random.expovariate(rate)
            came.append(now)
        taken = [0] * (self.most + 1)
        latencies, free, first = list[float](), 0.0, 0
        while first < REQUESTS:
            full = came[first + self.most - 1] if first + self.most <= REQUESTS else float("inf")
            start = max(free, min(came[first] + self.patience_seconds, full))
            last = first
            while last < REQUESTS and last - first < self.most and came[last] <= start:
                last += 1
            taken[last - first] += 1
            free = start + seconds[last - first]
            latencies += [free - moment for moment in came[first:last]]
            first = last
        work = [count * time for count, time in zip(taken, seconds, strict=True)]
        sms = sum(time * self.model.occupied(size) for size, time in enumerate(work) if time)
        if sum(work) > MOST_BUSY * free:
            return None
        beside = sum(count * size**2 for size, count in enumerate(taken)) / REQUESTS
        latencies.sort()
        return MeasuredStep(sum(work) / free, sms / free, 1000 * latencies[int(0.99 * REQUESTS)], ceil(beside))


def _figures(step: MeasuredStep) -> tuple[float, float, float]:
    return step.busy, step.active, step.latency_ms


@dataclass(frozen=True)
class Layer:
    """One layer of a network: blocks of equal work that run in waves, and weights that are read once for a batch."""

    blocks: int  # of one request
    block_ms: float  # each, on one SM
    weights_ms: float  # to read them with all that memory gives
    request_ms: float  # to read and write what is of one request
    needed: float  # of the SMs, to draw all that memory gives

    def run(self, batch: int, share: float) -> tuple[float, float]:
        """Returns how long it takes, and on which part of the SMs it runs meanwhile, on average."""
        sms = max(1, int(SMS * share))
        waves = ceil(self.blocks * batch / sms)
        reading = (self.weights_ms + self.request_ms * batch) / min(1.0, share / self.needed)
        return max(waves * self.block_ms, reading), self.blocks * batch / (waves * SMS)


@dataclass(frozen=True)
class TiledLayers(TrueModel):
    """Layers that are bound by their arithmetic or by memory, whichever takes longer, with the host's work between."""

    layers: tuple[Layer, ...]
    host_ms: float
    base_gib: float
    gib_of_request: float
    pressure: float
    sensitivity: float

    @staticmethod
    def draw(random: Random) -> TiledLayers:
        time = min(120.0, max(2.0, 12.0 * exp(random.gauss(0, 0.9))))
        waits = random.uniform(0.03, 0.4)
        parts = [random.expovariate(1.0) + 0.1 for _ in range(random.randrange(3, 10))]
        intensity = random.gauss(0.0, 0.7)
        layers = []
        for part in parts:
            own = time * (1 - waits) * part / sum(parts)
            blocks = round(exp(random.uniform(log(5), log(500))))
            bound = exp(intensity + random.gauss(0, 0.8))  # arithmetic beside memory
            computing, reading = own * min(1.0, bound), own * min(1.0, 1 / bound)
            of_request = random.uniform(0.03, 0.6)
            layers.append(
                Layer(
                    blocks, computing / ceil(blocks / SMS), reading * (1 - of_request), reading * of_request,
                    random.uniform(0.25, 0.9),
                )
            )  # fmt: skip
        return TiledLayers(
            tuple(layers), time * waits, random.uniform(0.5, 10.0), random.uniform(0.01, 0.25),
            random.uniform(0.0, 0.6), random.uniform(0.0, 0.35),
        )  # fmt: skip

    def occupied(self, batch: int) -> float:
        runs = [layer.run(batch, 1.0) for layer in self.layers]
        return sum(time * part for time, part in runs) / self.batch_ms(batch, 1.0)

    def batch_ms(self, batch: int, share: float) -> float:
        return self.host_ms * (1 + 0.05 * (batch - 1)) + sum(layer.run(batch, share)[0] for layer in self.layers)
