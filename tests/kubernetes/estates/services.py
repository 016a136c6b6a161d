"""Workloads with a load, the replicas that were there minute by minute, and the SLO that each promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from tests.kubernetes.estates.shapes import DAY_MINUTES, Series, Shape
from tests.kubernetes.estates.truth import LanguageModel, OneAtATime, Served, TrueReplica

PERCENTILE = 99.0
SETTLING_MINUTES = 5  # an autoscaler takes no replica away until so long


@dataclass(frozen=True)
class DrawnService:
    """One workload. `replicas` are those that served, minute by minute; the last of them stand now."""

    namespace: str
    kind: str
    name: str
    gpus: int  # or slots, of each pod
    pods: int  # of a replica
    truth: TrueReplica
    rates: Series
    replicas: NDArray[np.int64]
    slo_ms: Mapping[str, float]  # by what `Served` times; empty: nothing is promised
    bounds: tuple[int, int] | None  # of its autoscaler
    seed: int

    @property
    def workload(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"

    @property
    def now(self) -> int:
        return int(self.replicas[-1])

    @cached_property
    def past(self) -> Served:
        return self.truth.serve(self.rates, self.replicas, np.random.default_rng(self.seed))

    def serve_by(self, count: int) -> Served:
        """Serves as many requests again, of another draw, by so many replicas all the time."""
        counts = np.full_like(self.replicas, count)
        return self.truth.serve(self.rates, counts, np.random.default_rng(self.seed + 1))


def keeps(served: Served, slo_ms: Mapping[str, float], percentile: float) -> bool:
    return all(served.quantile_ms(time, percentile) <= limit for time, limit in slo_ms.items())


def draw_one_at_a_time(random: Random, server: str) -> tuple[OneAtATime, float, dict[str, float]]:
    """Returns a replica, the requests a second with which it is always busy, and what its workload promises."""
    seconds = random.choice((2.0, 3.0, 5.0))
    truth = OneAtATime(seconds, random.choice((0.0, 0.3, 0.7)), random.random() < 0.3, server)
    return truth, 1 / seconds, {"latency": 1000 * seconds * random.uniform(4.0, 14.0)}


def draw_language_model(random: Random, server: str) -> tuple[LanguageModel, float, dict[str, float]]:
    slots, token_ms, slower_ms = random.choice((8, 16)), random.uniform(20, 40), random.uniform(0.5, 2.0)
    truth = LanguageModel(
        slots,
        random.uniform(100, 400),
        token_ms,
        slower_ms,
        random.uniform(300, 2000),
        random.uniform(60, 250),
        server,
    )
    full_ms = token_ms + slower_ms * slots
    slo_ms = {"first_token": random.uniform(1000, 6000), "token": full_ms * random.uniform(0.8, 1.3)}
    return truth, slots / (full_ms / 1000 * truth.output_tokens), slo_ms


def draw_service(
    random: Random,
    place: tuple[str, str, str],
    kind: tuple[int, int, str],
    replicas: int,
    shape: Shape,
    minutes: int,
) -> DrawnService:
    """Draws a workload with at most so many replicas: an autoscaler follows its load, or they are set by hand.

    `place` is namespace, kind and name, `kind` GPUs of a pod, pods of a replica, and server. In most of them replicas
    break down for hours.
    """
    truth, most, slo_ms = (draw_language_model if place[1] == "LeaderWorkerSet" else draw_one_at_a_time)(
        random, kind[2]
    )
    wave = shape(minutes)
    rates = wave * replicas * most * random.uniform(0.1, 0.5)
    bounds = None
    if random.random() < 0.5 and replicas > 1:
        bounds = random.randrange(1, max(2, replicas // 2)), replicas
        counts = _follow(rates, most * random.uniform(0.3, 0.7), bounds)
    else:
        counts = np.full(minutes, replicas, np.int64)
    if replicas > 1 and random.random() < 0.8:
        counts = _break_down(random, counts, np.ceil(rates / most / random.uniform(0.4, 0.9)).astype(np.int64))
    return DrawnService(
        *place,
        *kind[:2],
        truth,
        rates,
        counts,
        {} if random.random() < 0.2 else slo_ms,
        bounds,
        random.randrange(2**32),
    )


def _follow(rates: Series, target: float, bounds: tuple[int, int]) -> NDArray[np.int64]:
    """Returns the replicas of an autoscaler that wants so many requests a second for each."""
    wanted = np.clip(np.ceil(rates / target), *bounds).astype(np.int64)
    padded = np.concatenate((np.repeat(wanted[0], SETTLING_MINUTES), wanted))
    found: NDArray[np.int64] = np.lib.stride_tricks.sliding_window_view(padded, SETTLING_MINUTES + 1).max(axis=1)
    return found


def _break_down(random: Random, counts: NDArray[np.int64], least: NDArray[np.int64]) -> NDArray[np.int64]:
    """Takes replicas away for hours around the peak of a day, every third day, down to so few."""
    found = counts.copy()
    for day in range(0, len(counts), 3 * DAY_MINUTES):
        peak = day + int(least[day : day + DAY_MINUTES].argmax())
        first = max(0, min(len(counts) - 400, peak + random.randrange(-150, 30)))
        stop = first + random.randrange(60, 300)
        found[first:stop] = np.minimum(found[first:stop], max(1, int(least[first:stop].max())))
    return found
