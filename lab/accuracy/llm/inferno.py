"""One server's sweeps over rates and shapes: a shape left out of one fit, and a rate left out of its shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.accuracy.accuracy_row import AccuracyRow
from lab.accuracy.llm.sweeps import FOLDER, LIMITS, SweepRun, read_sweeps
from lab.language.paced import PacedSweep
from solvers.llm.fit import fit
from solvers.llm.sweeps.load import OfferedRequests, ServerModel, TokenTimes

Floats = NDArray[np.float64]

HALF_ROUNDS, ROUNDS = 25, 8
OURS = "ours"
NEAREST = "nearest run of another shape, by tokens a second"
LINE = "line through the two nearest rates"
LOG = "line of logarithms"


def rows(data: Path) -> list[AccuracyRow]:
    """Returns the errors of both protocols; every figure is of runs that the fit does not use."""
    runs, unbounded = read_sweeps(data)
    shapes = sorted({run.shape for run in runs})
    models = _fit_without_each([*runs, *unbounded], shapes)
    whole: dict[str, list[tuple[float, float]]] = {}
    single: dict[str, list[tuple[float, float]]] = {}
    for shape in shapes:
        mine = [run for run in runs if run.shape == shape]
        others = [run for run in runs if run.shape != shape]
        for run in mine:
            _judge(whole, OURS, run, OfferedRequests(run.measured.load).times(models[shape]))
            _judge(whole, NEAREST, run, _nearest(run, others))
            _left_out(single, run, [other for other in mine if other is not run], models[shape])
    return [
        *_rows("inferno.onefit", whole, "one fit for all shapes, one shape left out at a time"),
        *_rows("inferno.pershape", single, "a rate of a shape left out; the model is fitted to the other shapes"),
    ]


def _fit_without_each(
    runs: Sequence[SweepRun], shapes: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], ServerModel]:
    """Fits a server without each shape. The search begins from a fit to the half of the shapes that lacks it, too."""
    starts = [
        fit([run.measured for run in runs if run.shape in shapes[half::2]], LIMITS, rounds=HALF_ROUNDS).model
        for half in (1, 0)
    ]
    return {
        shape: fit([run.measured for run in runs if run.shape != shape], LIMITS, starts[place % 2], rounds=ROUNDS).model
        for place, shape in enumerate(shapes)
    }


def _left_out(
    errors: dict[str, list[tuple[float, float]]], run: SweepRun, kept: Sequence[SweepRun], model: ServerModel
) -> None:
    rate = run.requests_per_second
    _judge(errors, OURS, run, PacedSweep(model, [each.measured for each in kept]).predict(run.measured.load, rate))
    rates = np.array([each.requests_per_second for each in kept])
    times = np.array([[each.measured.times.ttft_ms, each.measured.times.tpot_ms] for each in kept])
    for name, forward, back in ((LINE, np.asarray, float), (LOG, np.log, np.exp)):
        predicted = []
        for column in times.T:
            known = ~np.isnan(column)
            start, end = np.abs(rates[known] - rate).argsort()[:2]
            x, y = rates[known], forward(column[known])
            predicted.append(float(back(y[start] + (y[end] - y[start]) * (rate - x[start]) / (x[end] - x[start]))))
        _judge(errors, name, run, TokenTimes(*predicted))


def _nearest(run: SweepRun, others: Sequence[SweepRun]) -> TokenTimes:
    """Returns what was measured of the run whose input, output and rate are most alike, in logarithms."""
    mine = np.log([*run.shape, run.requests_per_second])
    away = [float(np.abs(np.log([*other.shape, other.requests_per_second]) - mine).sum()) for other in others]
    return others[int(np.argmin(away))].measured.times


def _judge(errors: dict[str, list[tuple[float, float]]], name: str, run: SweepRun, predicted: TokenTimes) -> None:
    truth = run.measured.times
    errors.setdefault(name, []).append((predicted.ttft_ms / truth.ttft_ms - 1, predicted.tpot_ms / truth.tpot_ms - 1))


def _rows(what: str, errors: dict[str, list[tuple[float, float]]], note: str) -> list[AccuracyRow]:
    found = []
    for column, quantity in enumerate(("ttft", "itl")):
        values: dict[str, Floats] = {name: 100 * np.abs(np.array(each)[:, column]) for name, each in errors.items()}
        judged = {name: each[~np.isnan(each)] for name, each in values.items()}
        means = {name: round(float(each.mean()), 3) for name, each in judged.items()}
        ours = means.pop(OURS)
        words = f"{note}; median {np.median(judged[OURS]):.2f} %, worst {judged[OURS].max():.0f} %"
        found.append(AccuracyRow(f"{what}.{quantity}", str(FOLDER), len(judged[OURS]), ours, means, note=words))
    return found
