"""Scores forecasters on traces of rates: how often the load exceeds what was planned early enough, and the price of it.

A rate that is planned at one moment can be served `START_SECONDS` later, when new copies are ready; a rate that is no
longer planned is gone at once. So the load of a moment is compared to the lowest rate planned within that time.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TypeAlias

from simulation.shapes import Shape, moving, noisy, spike, steady, wave
from solvers.forecast import Forecast, Margin, PlannedRate, Sample, make_margin_rules
from solvers.forecast.margin import LOAD_SHARE, RISK

Forecaster: TypeAlias = Callable[[Sequence[Sample], PlannedRate], Forecast]
SAMPLE_SECONDS = 10
CYCLE_SECONDS = 30
START_SECONDS = 20
AHEAD_SECONDS = float(CYCLE_SECONDS + START_SECONDS)
KNOWN_SECONDS = 1800  # of samples that a forecaster gets
LEARNING_SECONDS = 2400.0  # before anything is scored
RATES = (1000.0, 200.0, 50.0, 20.0)
FEW_RATES = (15.0, 8.0, 4.0, 2.0)
BUDGET = 0.01  # share of an hour's requests that may be late
CLASS_SHARE = 0.05  # by which one class of capacity exceeds the next smaller one


@dataclass(frozen=True, slots=True)
class Trace:
    """The load of one service. The counts that are reported scatter as arrivals do."""

    shape: Shape
    seed: int
    rate_per_second: float
    seconds: int = 9600
    exceeds: float = 0.0  # above 0, what rises is this much more than can be served, and no more: an adversary's load


@dataclass(frozen=True, slots=True)
class ForecastScore:
    """The score of a forecaster on one or more traces."""

    over_share: float  # of the time: the load exceeds what was planned early enough
    p99: float  # of the load relative to that
    most: float
    headroom: float  # by which the mean planned rate exceeds the mean load
    changes_per_hour: float  # of the planned rate, per service
    class_changes_per_hour: float  # of its class of capacity
    overspent_share: float  # of hours: more load than their budget exceeds what was planned early enough
    missed_share: float  # of hours: more than the part of it that a risk is about


@dataclass(frozen=True, slots=True)
class _Moment:
    """A moment of a trace: the load, the rate that can be served, and the planned one."""

    load: float
    ready: float
    planned: float


def bursty(seed: int) -> Shape:
    """Returns a steady load with bursts of half as much again, of one to three minutes, about every ten minutes."""
    draw = random.Random(f"bursts {seed}")  # noqa: S311 (a load, not a secret)
    bursts = []
    at = 0.0
    while at < 24 * 3600:
        at += draw.expovariate(1 / 600)
        bursts.append((at, at + draw.uniform(60, 180)))
        at = bursts[-1][1]
    return lambda seconds: 1.5 if any(began <= seconds < ended for began, ended in bursts) else 1.0


def traces(seeds: Sequence[int]) -> Mapping[str, Sequence[Trace]]:
    """Returns traces of six kinds, each with a rate of its own."""
    every: Mapping[str, Callable[[int], Shape]] = {
        "moving": moving,
        "wave": lambda seed: wave(0.5, 1.5, 7200.0, seed / 10),
        "spike": lambda seed: spike(3600.0 + seed),
        "steady": lambda seed: noisy(steady, 0.02, str(seed)),
        "bursty": bursty,
    }
    found = {
        name: [Trace(shape(seed), seed, RATES[seed % len(RATES)]) for seed in seeds] for name, shape in every.items()
    }
    days = [wave(0.25, 1.0, 86400.0, seed * 3 / 8) for seed in seeds]  # begun at all hours
    found["few"] = [
        Trace(day, seed, FEW_RATES[seed % len(FEW_RATES)], 14400) for seed, day in zip(seeds, days, strict=True)
    ]
    return found


def score(forecaster: Forecaster, courses: Sequence[Trace], declared: float = 1.0, risk: float = RISK) -> ForecastScore:
    """Scores a forecaster on all of these traces together."""
    moments = [list(_follow(forecaster, trace, declared, risk)) for trace in courses]
    each = [moment for course in moments for moment in course]
    ratios = sorted(moment.load / moment.ready for moment in each)
    hours = len(each) * SAMPLE_SECONDS / 3600
    return ForecastScore(
        over_share=sum(ratio > 1 for ratio in ratios) / len(ratios),
        p99=ratios[int(0.99 * len(ratios))],
        most=ratios[-1],
        headroom=sum(moment.planned for moment in each) / sum(moment.load for moment in each) - 1,
        changes_per_hour=sum(_changes([moment.planned for moment in course]) for course in moments) / hours,
        class_changes_per_hour=sum(_changes([_class(moment.planned) for moment in course]) for course in moments)
        / hours,
        overspent_share=mean(above > BUDGET for course in moments for above in _find_above(course)),
        missed_share=mean(above > LOAD_SHARE * BUDGET for course in moments for above in _find_above(course)),
    )


def _find_above(course: Sequence[_Moment]) -> Iterator[float]:
    """Yields the share of each hour's load that exceeds what was planned early enough."""
    hour = 3600 // SAMPLE_SECONDS
    for begin in range(0, len(course), hour):
        moments = course[begin : begin + hour]
        above = sum(max(0.0, moment.load - moment.ready) for moment in moments)
        yield above / sum(moment.load for moment in moments)


def _follow(forecaster: Forecaster, trace: Trace, declared: float, risk: float) -> Iterator[_Moment]:
    margin, rules = Margin(), make_margin_rules(risk, 100 * (1 - BUDGET), START_SECONDS, CYCLE_SECONDS)
    draw = random.Random(trace.seed)  # noqa: S311 (the same)
    samples: list[Sample] = []
    recent: list[float] = []  # planned rates, one a sample
    planned, risen_at = declared * trace.rate_per_second, -math.inf
    for now in range(SAMPLE_SECONDS, trace.seconds, SAMPLE_SECONDS):
        load = trace.rate_per_second * trace.shape(now - SAMPLE_SECONDS / 2)
        if trace.exceeds and load > trace.rate_per_second:
            load = max(trace.rate_per_second, min(load, (1 + trace.exceeds) * min([*recent, planned])))
        requests = max(0.0, draw.gauss(load * SAMPLE_SECONDS, math.sqrt(load * SAMPLE_SECONDS)))
        samples.append(Sample(now, SAMPLE_SECONDS, requests))
        recent.append(planned)
        margin.add(samples[-1], planned, rules)
        del samples[: -KNOWN_SECONDS // SAMPLE_SECONDS]
        del recent[: -1 - START_SECONDS // SAMPLE_SECONDS]
        if now > LEARNING_SECONDS:
            yield _Moment(load, min(recent), planned)
        if now % CYCLE_SECONDS:
            continue
        plan = PlannedRate(
            planned, declared * trace.rate_per_second, AHEAD_SECONDS, margin.share, observed_seconds=float(now),
            risen_seconds=now - risen_at,
        )  # fmt: skip
        found = forecaster(samples, plan)
        if found.rate > planned:
            risen_at = now
        planned = found.rate


def _changes(values: Sequence[float]) -> int:
    return sum(before != after for before, after in itertools.pairwise(values))


def _class(rate: float) -> float:
    return math.ceil(math.log(rate) / math.log(1 + CLASS_SHARE) - 1e-9)
