"""Runs a planner's cycles over a synthetic load, and records the planned rates and their changes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from solvers.forecast import Forecast, PlannedRate, Sample, expect

CYCLE_SECONDS = 30
AHEAD_SECONDS = 50.0


@dataclass(slots=True)
class Course:
    """The planned and observed rates, cycle by cycle, and the changes."""

    planned: list[float] = field(default_factory=list)
    observed: list[float] = field(default_factory=list)  # of the newest sample
    changes: list[tuple[int, float, Forecast]] = field(default_factory=list)  # cycle, rate before, forecast

    def after(self, cycle: int) -> list[tuple[int, float, Forecast]]:
        return [change for change in self.changes if change[0] >= cycle]


def steady(_seconds: float) -> float:
    return 1.0


def spike(seconds: float, start: float = 1800.0, hold: float = 600.0, height: float = 4.0) -> float:
    """Rises within 30 seconds, holds, and falls within 30."""
    up, down = (seconds - start) / 30, (start + 30 + hold + 30 - seconds) / 30
    return 1 + (height - 1) * min(1.0, max(0.0, min(up, down)))


def daily(seconds: float) -> float:
    """Returns a day's wave in 24 steps."""
    return 1 + 0.5 * math.sin(2 * math.pi * (seconds // 3600) / 24)


def follow(
    load: Callable[[float], float], seed: int = 0, noise: float = 0.0, of_cycle: bool = False, rate: float = 100.0,
    declared: float = 1.0, cycles: int = 1010, sample_seconds: int = 10, counted: bool = False,
    bad: Callable[[int], float] | None = None, missed_seconds: float = math.inf,
) -> Course:  # fmt: skip
    """Plans over the load. `noise` is a share, drawn for each sample or cycle; `counted` scatters counts like arrivals.

    `bad` gives a factor for the n-th sample.
    """
    draw = random.Random(seed)
    course, samples = Course(), list[Sample]()
    planned, risen_at, shake = declared * rate, -math.inf, 1.0
    for cycle in range(cycles):
        if of_cycle:
            shake = max(0.0, 1 + draw.gauss(0, noise))
        for step in range(1, CYCLE_SECONDS // sample_seconds + 1):
            now = cycle * CYCLE_SECONDS + step * sample_seconds
            if not of_cycle:
                shake = max(0.0, 1 + draw.gauss(0, noise))
            came = rate * shake * load(now - sample_seconds / 2) * sample_seconds
            if counted:
                came = max(0.0, round(draw.gauss(came, math.sqrt(came)))) if came > 50 else _poisson(draw, came)
            if bad is not None:
                came *= bad(cycle * (CYCLE_SECONDS // sample_seconds) + step)
            samples.append(Sample(now, sample_seconds, came))
        del samples[: -1800 // sample_seconds]
        observed = (cycle + 1) * CYCLE_SECONDS
        plan = PlannedRate(
            planned, declared * rate, AHEAD_SECONDS, observed_seconds=observed, risen_seconds=now - risen_at,
            missed_seconds=missed_seconds,
        )  # fmt: skip
        found = expect(samples, plan)
        if found.rate != planned:
            course.changes.append((cycle, planned, found))
        if found.rate > planned:
            risen_at = now
        planned = found.rate
        course.planned.append(planned)
        course.observed.append(samples[-1].rate_per_second)
    return course


def _poisson(draw: random.Random, mean: float) -> int:
    count, waited = 0, draw.expovariate(1.0)
    while waited < mean:
        count += 1
        waited += draw.expovariate(1.0)
    return count
