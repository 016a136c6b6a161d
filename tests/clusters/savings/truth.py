"""A made-up truth: replicas that serve one request at a time, and loads of a day; it knows nothing of the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import cos, pi
from random import Random

STEP_SECONDS = 900
STEPS = 96


@dataclass(frozen=True)
class TrueService:
    """How a workload's replicas serve: `spread` is 0 for equal requests and 1 for wildly different ones."""

    service_seconds: float
    spread: float
    is_pooled: bool  # the replica that is free first takes the next request; else a random one
    slo_ms: float
    rates: tuple[float, ...]  # a second, by step
    ready: tuple[int, ...]


def draw_service(random: Random, replicas: int) -> TrueService:
    """A day's load with one peak, and replicas that follow it, or not, and once break down for hours."""
    service = random.choice((0.5, 1.0, 2.0))
    peak = random.uniform(0.06, 0.4) * replicas / service
    top = random.uniform(30, 66)
    rates = [
        peak * (0.15 + 0.85 * (0.5 + 0.5 * cos(2 * pi * (step - top) / STEPS)) ** 2) * random.uniform(0.95, 1.05)
        for step in range(STEPS)
    ]
    follows = random.random() < 0.5
    ready = [max(1, min(replicas, round(replicas * rate / peak * 1.1))) if follows else replicas for rate in rates]
    down, first = random.randrange(replicas // 3, replicas), round(top) + random.randrange(-9, 1)
    for step in range(first, first + random.randrange(8, 20)):
        ready[step] = max(1, ready[step] - down)
    return TrueService(
        service, random.choice((0.0, 0.5, 1.0)), random.random() < 0.5, random.uniform(3.0, 14.0) * service * 1000,
        tuple(rates), tuple(ready),
    )  # fmt: skip


def serve(truth: TrueService, ready: Sequence[int], random: Random) -> list[list[float]]:
    """The latencies in ms of all requests, by the step in which they came."""
    free = [0.0] * ready[0]
    found: list[list[float]] = []
    for step, rate in enumerate(truth.rates):
        start, count = step * STEP_SECONDS, ready[step]
        free = sorted(free, reverse=True)[:count] if count < len(free) else free + [0.0] * (count - len(free))
        free.sort()
        latencies, now = [], float(start)
        while (now := now + random.expovariate(rate)) < start + STEP_SECONDS:
            work = truth.service_seconds * ((1 - truth.spread) + truth.spread * random.expovariate(1.0))
            at = 0 if truth.is_pooled else random.randrange(count)
            done = max(now, free[at]) + work
            if truth.is_pooled:
                heapreplace(free, done)
            else:
                free[at] = done
            latencies.append(1000 * (done - now))
        found.append(latencies)
    return found


def quantile(values: Sequence[float], percentile: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percentile / 100))]
