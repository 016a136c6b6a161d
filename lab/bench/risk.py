"""Asks for risks and counts the hours that miss them, under loads made to find a plan too low."""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import ceil, sqrt
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say

SHOWN = ("load", "risk", "hours", "missed", "chance_limit", "worst_seed", "overspent", "headroom")
RISKS = (0.2, 0.05, 0.02)
HOUR_SECONDS = 3600.0
WINDOWS = 3.0  # each risk is asked for so many hours, times its reciprocal
NORMAL_95 = 1.645  # of draws that overspend just so often, 95 % stay below this many deviations more
EXCEEDS = 0.04  # what the hunter adds to what can be served
Levels = Iterator[tuple[float, float]]  # seconds, and the load in them over the usual one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", metavar="K", type=whole(1), default=4, help="seeds 0 to K - 1; default 4")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the missed hours and the headroom by risk")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each load and risk: the shares of hours that spent half of their budget and all of it."""
    rows = []
    for load in LOADS:
        for risk in RISKS:
            say(f"{load} at a risk of {risk:g}, {args.seeds} seeds")
            rows.append(score_load(load, risk, args.seeds))
    if args.plot:
        from lab.bench.risk_plot import draw

        draw(rows, Path(args.plot))
        say(f"drawn: {args.plot}")
    return {"rows": rows}


def score_load(load: str, risk: float, seeds: int) -> dict[str, Any]:
    """Returns the row of one load and risk; the hours of all seeds count alike."""
    from lab.forecast_scores import LEARNING_SECONDS, RATES, Trace, score
    from solvers.forecast import expect

    hours, scores = ceil(WINDOWS / risk), []
    for seed in range(seeds):
        draw = Random(f"{load} {seed}")  # noqa: S311 (a load, not a secret)
        shape = hold_levels(LOADS[load](draw), LEARNING_SECONDS + HOUR_SECONDS * (hours + 1))
        exceeds = EXCEEDS if load == "hunter" else 0.0
        seconds = int(LEARNING_SECONDS + hours * HOUR_SECONDS)
        scores.append(score(expect, [Trace(shape, seed, RATES[seed % len(RATES)], seconds, exceeds)], risk=risk))
    missed = [found.missed_share for found in scores]
    return {
        "load": load, "risk": risk, "hours": hours * seeds, "missed": fmean(missed),
        "chance_limit": risk + NORMAL_95 * sqrt(risk * (1 - risk) / (hours * seeds)), "worst_seed": max(missed),
        "overspent": fmean(found.overspent_share for found in scores),
        "headroom": fmean(found.headroom for found in scores),
    }  # fmt: skip


def hold_levels(levels: Levels, seconds: float) -> Callable[[float], float]:
    """Returns the load at each second, so far."""
    ends, held, end = [], [], 0.0
    while end < seconds:
        lasts, level = next(levels)
        end += lasts
        ends.append(end)
        held.append(level)
    return lambda at: held[bisect_right(ends, at)]


def come_back(draw: Random) -> Levels:
    """Rises for minutes, and again once a peak is forgotten or nearly so."""
    while True:
        yield draw.uniform(840, 2400), 1.0
        yield draw.uniform(240, 900), draw.uniform(1.1, 1.3)


def climb(draw: Random) -> Levels:
    """Rises by a tenth again and again, before the plan has settled, and falls back."""
    while True:
        for step in range(draw.randint(4, 9)):
            yield draw.uniform(400, 800), 1.1**step
        yield draw.uniform(1200, 3600), 1.0


def leap_hourly(draw: Random) -> Levels:
    """Leaps about once an hour for as long as an hour's budget lasts and longer."""
    while True:
        yield draw.uniform(2400, 4200), 1.0
        yield 240.0, draw.uniform(1.2, 1.45)


def hunt(draw: Random) -> Levels:
    """Has half an hour, about hourly, in which the load is a little above what can be served, whatever that is."""
    while True:
        yield draw.uniform(1200, 2400), 1.0
        yield 1800.0, 1.35


LOADS: dict[str, Callable[[Random], Levels]] = {
    "returning": come_back,
    "climbing": climb,
    "hourly": leap_hourly,
    "hunter": hunt,
}
