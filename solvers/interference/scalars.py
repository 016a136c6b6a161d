"""The pressures and the sensitivity of a Profile from measured slowdowns, with their spread.

slowdown = 1 + sensitivity x sum of the neighbours' pressures at their SM% (the rule of a right plan). Both are found
in turns, each a least-squares problem that allows nothing negative. The scale is free, so the largest pressure found
is 1. Spread comes from the curvature of the squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from solvers.interference.candidate import Floats
from solvers.interference.observation import SlowdownObservation, WrongObservation

ROUNDS = 500
STILL = 1e-10  # relative change of the squares at which the turns end
RIDGE = 1e-8
NINETY = 1.2815515594600038  # standard deviations of a normal distribution's 0.9 quantile


@dataclass(frozen=True, slots=True)
class SpreadValue:
    """A value found from measurements: its mean, its 0.9 quantile, and how many samples it rests on."""

    mean: float
    q90: float
    samples: int


@dataclass(frozen=True)
class MeasuredScalars:
    """A model's pressures by SM% where it was a neighbour, and its sensitivity if it was measured beside one."""

    pressure: Mapping[int, SpreadValue] = field(default_factory=dict)
    sensitivity: SpreadValue | None = None


@dataclass(frozen=True, slots=True)
class ScalarTables:
    """The observations as arrays: which model was slowed, by how much, and by which neighbours."""

    models: list[str]
    sources: list[tuple[str, int]]  # (neighbour, SM%)
    victim: npt.NDArray[np.int64]
    counts: Floats
    extra: Floats  # slowdown - 1
    samples: Floats


def pressure_and_sensitivity(observations: Sequence[SlowdownObservation]) -> dict[str, MeasuredScalars]:
    """Returns each model's pressures and sensitivity."""
    if any(each.run.against is not None for each in observations):
        raise WrongObservation("pressures need slowdowns against the model alone")
    tables = _tables([each for each in observations if each.run.neighbours])
    sensitivities, pressures = _fit_in_turns(tables)
    if len(pressures) and pressures.max() > 0:
        sensitivities, pressures = sensitivities * pressures.max(), pressures / pressures.max()
    sensitivity_spread, pressure_spread = _spreads(tables, sensitivities, pressures)
    found: dict[str, MeasuredScalars] = {}
    for at, model in enumerate(tables.models):
        mine = tables.victim == at
        sensitivity = None
        if mine.any():
            sensitivity = _value(sensitivities[at], sensitivity_spread[at], float(tables.samples[mine].sum()))
        pressure = {
            sm_percent: _value(
                pressures[row], pressure_spread[row], float(tables.samples[tables.counts[:, row] > 0].sum())
            )
            for row, (source, sm_percent) in enumerate(tables.sources)
            if source == model
        }
        found[model] = MeasuredScalars(pressure, sensitivity)
    return found


def _tables(observations: Sequence[SlowdownObservation]) -> ScalarTables:
    models = sorted({model for each in observations for model in each.run.models})
    sources = sorted({(n.model, n.sm_percent) for each in observations for n in each.run.neighbours})
    places, rows = ({each: at for at, each in enumerate(group)} for group in (sources, models))
    counts = np.zeros((len(observations), len(sources)))
    for row, each in enumerate(observations):
        for neighbour in each.run.neighbours:
            counts[row, places[neighbour.model, neighbour.sm_percent]] += 1
    return ScalarTables(
        models,
        sources,
        np.array([rows[each.run.model] for each in observations], dtype=np.int64),
        counts,
        np.array([each.slowdown - 1 for each in observations]),
        np.array([float(each.samples) for each in observations]),
    )


def _fit_in_turns(tables: ScalarTables) -> tuple[Floats, Floats]:
    from scipy.optimize import nnls  # a fifth of a second, which only a fit needs

    sensitivities, pressures = np.ones(len(tables.models)), np.zeros(len(tables.sources))
    root, ridge = np.sqrt(tables.samples), np.sqrt(RIDGE) * np.eye(len(pressures))
    before = np.inf
    for _ in range(ROUNDS if len(pressures) else 0):
        table = (root * sensitivities[tables.victim])[:, None] * tables.counts
        wanted = np.concatenate((root * tables.extra, np.zeros(len(pressures))))
        pressures = nnls(np.vstack((table, ridge)), wanted)[0]
        total = tables.counts @ pressures
        above = np.bincount(tables.victim, tables.samples * total * tables.extra, len(sensitivities))
        below = np.bincount(tables.victim, tables.samples * total**2, len(sensitivities)) + RIDGE
        sensitivities = np.maximum(above / below, 0.0)
        squares = float(tables.samples @ (tables.extra - sensitivities[tables.victim] * total) ** 2)
        if before - squares <= STILL * max(squares, 1e-12):
            break
        before = squares
    return sensitivities, pressures


def _spreads(tables: ScalarTables, sensitivities: Floats, pressures: Floats) -> tuple[Floats, Floats]:
    """Returns standard deviations: residual variance x inverse of the squares' curvature, the largest pressure held.

    It is the scale, so what is unsure of it is unsure of all others.
    """
    count, own = len(tables.models), sensitivities[tables.victim]
    slopes = np.zeros((len(tables.extra), count + len(pressures)))
    slopes[np.arange(len(tables.extra)), tables.victim] = tables.counts @ pressures
    slopes[:, count:] = own[:, None] * tables.counts
    if len(pressures) and pressures.max() > 0:
        slopes[:, count + int(pressures.argmax())] = 0.0
    residual = tables.extra - own * (tables.counts @ pressures)
    free = int(np.linalg.matrix_rank(slopes)) if len(slopes) else 0
    variance = float(tables.samples @ residual**2) / max(1, len(residual) - free)
    curvature = slopes.T @ (tables.samples[:, None] * slopes)
    deviation = np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature)) * variance, 0.0))
    return deviation[:count], deviation[count:]


def _value(mean: float, deviation: float, samples: float) -> SpreadValue:
    return SpreadValue(float(mean), float(mean + NINETY * deviation), int(samples))
