"""Forecasts of production load 10 minutes and an hour ahead: what they miss, and how often their upper quantile holds.

A series is the sum of the clients of a ServeGen folder. Forecasts are made step by step, from what was known then, and
judged on the second half. Each is beside the last value, the same time a day before, and a Kalman filter of the
level."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.accuracy.accuracy_row import AccuracyRow
from lab.data.missing_data import DataMissing
from solvers.forecast.contest import Contest

SERIES = ("m-mid", "m-small")
STEP_SECONDS = 600
STEPS_A_DAY = 86_400 // STEP_SECONDS
LEADS = {"10min": 1, "60min": 6}
QUANTILE = 0.9
FEWEST_RATIOS = 20
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Forecasts:
    """Forecasts by the step that they are about; NaN where there is none."""

    middle: Floats
    upper: Floats


def rows(data: Path) -> list[AccuracyRow]:
    """Returns the rows of both series at both leads, and the time that a series takes."""
    found: list[AccuracyRow] = []
    began, count = time.process_time(), 0
    ours = {}
    series = {name: read(data / "servegen" / name) for name in SERIES}
    for name, rates in series.items():
        for lead in LEADS.values():
            ours[name, lead] = competing(rates, lead)
        count += len(rates)
    each_ms = 1000.0 * (time.process_time() - began) / len(series)
    for name, rates in series.items():
        for label, lead in LEADS.items():
            found += list(_judged(name, label, rates, lead, ours[name, lead]))
    note = f"both leads, {count // len(series)} steps learned and forecast; {10_000 * each_ms / 1000:.0f} s for 10,000"
    return [*found, AccuracyRow("forecast.milliseconds", "servegen", len(series), each_ms, {}, "ms a series", note)]


def read(folder: Path) -> Floats:
    """Returns the rate a second of all clients together, by step."""
    files = sorted(folder.glob("*-trace.csv"))
    if not files:
        raise DataMissing(f"{folder} has no *-trace.csv")
    total: Floats = sum(np.loadtxt(file, delimiter=",", usecols=1, ndmin=1) for file in files)  # type: ignore[assignment]
    return total


def competing(rates: Floats, lead: int) -> Forecasts:
    """Returns our forecasts: candidates that compete by pinball loss."""
    contest = Contest(lead, STEPS_A_DAY, QUANTILE)
    middle, upper = np.full((2, len(rates) + lead), np.nan)
    for at, rate in enumerate(rates.tolist()):
        expected = contest.observe(rate)
        middle[at + lead], upper[at + lead] = expected.middle, expected.upper
    return Forecasts(middle[: len(rates)], upper[: len(rates)])


def scale_by_ratios(points: Floats, rates: Floats, lead: int) -> Forecasts:
    """Returns points, and as upper forecasts these times the quantile of the rates' own past ratios to them."""
    upper = np.full(len(rates), np.nan)
    ratios: list[float] = []
    for at in range(len(rates)):
        if points[at] > 0:
            insort(ratios, rates[at] / points[at])
        if at + lead < len(rates) and len(ratios) >= FEWEST_RATIOS:
            upper[at + lead] = points[at + lead] * np.quantile(ratios, QUANTILE)
    return Forecasts(points, upper)


def ago(rates: Floats, steps: int) -> Floats:
    """Returns the rate so many steps before."""
    return np.concatenate([np.full(steps, np.nan), rates[:-steps]])


def kalman(rates: Floats, lead: int) -> Floats:
    """Returns the level of a random walk with noise; the variances follow the innovations, as for Dynamo's planner."""
    level, doubt, walk, noise = float(rates[0]), 1.0, 1.0, 1.0
    found = np.full(len(rates) + lead, np.nan)
    for at, rate in enumerate(rates.tolist()):
        doubt += walk
        innovation = rate - level
        gain = doubt / (doubt + noise)
        level += gain * innovation
        doubt *= 1.0 - gain
        walk += 0.02 * ((gain * innovation) ** 2 - walk)
        noise += 0.02 * (max(innovation**2 - doubt - walk, 1e-9) - noise)
        found[at + lead] = level
    return found[: len(rates)]


def _judged(name: str, label: str, rates: Floats, lead: int, ours: Forecasts) -> Iterator[AccuracyRow]:
    baselines = {
        "last": scale_by_ratios(ago(rates, lead), rates, lead),
        "yesterday": scale_by_ratios(ago(rates, STEPS_A_DAY), rates, lead),
        "kalman": scale_by_ratios(kalman(rates, lead), rates, lead),
    }
    judged = len(rates) // 2
    measures: dict[str, tuple[Callable[[Forecasts], float], str, str]] = {
        "forecast": (partial(_missed_share, rates, judged), "% WAPE", "second half"),
        "pinball": (partial(_pinball, rates, judged), "requests/s", f"at {QUANTILE:g}, second half"),
        "coverage": (partial(_covered, rates, judged), "%", f"of an upper quantile of {100 * QUANTILE:g} %"),
    }
    for what, (measure, unit, note) in measures.items():
        beside = {other: measure(forecasts) for other, forecasts in baselines.items()}
        yield AccuracyRow(
            f"{what}.{name}.{label}", f"servegen/{name}", len(rates) - judged, measure(ours), beside, unit, note
        )


def _missed_share(rates: Floats, judged: int, of: Forecasts) -> float:
    return float(100.0 * np.abs(rates[judged:] - of.middle[judged:]).sum() / rates[judged:].sum())


def _pinball(rates: Floats, judged: int, of: Forecasts) -> float:
    above = rates[judged:] - of.upper[judged:]
    return float(np.where(above > 0, QUANTILE * above, (QUANTILE - 1.0) * above).mean())


def _covered(rates: Floats, judged: int, of: Forecasts) -> float:
    return float(100.0 * (rates[judged:] <= of.upper[judged:]).mean())
