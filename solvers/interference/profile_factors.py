"""The pressures and sensitivities of a Profile from measured slowdowns, with their spread.

slowdown = 1 + sum over factors of sensitivity x sum of the neighbours' pressures at their SM% (the rule of a right
plan), with one factor or two (`choice.choose_profile_shape`). The scale of each is free, so the largest pressure found
is 1. Spread comes from the curvature of the squares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from solvers.interference import factors
from solvers.interference.candidate import Floats
from solvers.interference.choice import SCALAR, SMALLEST_ERROR, TWO_LINEAR, choose_profile_shape
from solvers.interference.factor_layout import FactorShape
from solvers.interference.factors import ONE_FACTOR, TWO_FACTORS
from solvers.interference.observation import SlowdownObservation, WrongObservation
from solvers.interference.pure_factors import FACTORS, FactorMatrices, purify

NINETY = 1.2815515594600038  # standard deviations of a normal distribution's 0.9 quantile


@dataclass(frozen=True, slots=True)
class SpreadValue:
    """A value found from measurements: its mean, its 0.9 quantile, and how many samples it rests on."""

    mean: float
    q90: float
    samples: int


@dataclass(frozen=True)
class MeasuredFactors:
    """A model's pressures by SM% where it was a neighbour, and its sensitivities if it was measured beside one.

    Both are by factor: `compute` alone, or `compute` and `bandwidth`."""

    pressure: Mapping[str, Mapping[int, SpreadValue]] = field(default_factory=dict)
    sensitivity: Mapping[str, SpreadValue] = field(default_factory=dict)

    def pressures_at(self, sm_percent: float) -> dict[str, float]:
        """Returns its mean pressures by factor, linear between the SM% that were measured."""
        return {
            name: float(np.interp(sm_percent, sorted(by_share), [by_share[share].mean for share in sorted(by_share)]))
            for name, by_share in self.pressure.items()
        }

    def slowdown_beside(self, pressures: Sequence[Mapping[str, float]]) -> float:
        """Returns how many times as long it takes beside neighbours with these pressures by factor."""
        return 1 + sum(
            value.mean * sum(each.get(name, 0.0) for each in pressures) for name, value in self.sensitivity.items()
        )


@dataclass(frozen=True, slots=True)
class SlowdownTables:
    """The observations as arrays: which model was slowed, by how much, and by which neighbours."""

    models: list[str]
    sources: list[tuple[str, int]]  # (neighbour, SM%)
    victim: npt.NDArray[np.int64]
    counts: Floats
    extra: Floats  # slowdown - 1
    samples: Floats


def pressure_and_sensitivity(
    observations: Sequence[SlowdownObservation], levels: Sequence[int] = ()
) -> dict[str, MeasuredFactors]:
    """Returns each model's pressures, at these SM% or at those that were measured, and its sensitivities."""
    if any(each.run.against is not None for each in observations):
        raise WrongObservation("pressures need slowdowns against the model alone")
    beside = [each for each in observations if each.run.neighbours]
    if not beside:
        return {}
    tables = _tables(beside, levels)
    found = _find_factors(beside, tables, levels)
    scale = found.pressures.max(0)
    found = FactorMatrices(found.sensitivities * scale, found.pressures / scale)
    spread = _spreads(tables, found)
    return {model: _measured(tables, model, found, spread) for model in tables.models}


def name_candidate(found: Mapping[str, MeasuredFactors]) -> str:
    """Returns which candidate of `choice` these pressures and sensitivities are of."""
    has_two = any(len(each.sensitivity) > 1 for each in found.values())
    return (TWO_LINEAR if has_two else SCALAR).name


def _measured(tables: SlowdownTables, model: str, found: FactorMatrices, spread: FactorMatrices) -> MeasuredFactors:
    at = tables.models.index(model)
    rows = {percent: row for row, (source, percent) in enumerate(tables.sources) if source == model}
    mine = tables.victim == at
    pressure, sensitivity = {}, {}
    for k, name in enumerate(FACTORS[: found.pressures.shape[1]]):
        if rows:
            pressure[name] = {
                percent: _value(
                    found.pressures[row, k], spread.pressures[row, k], tables.samples[tables.counts[:, row] > 0].sum()
                )
                for percent, row in rows.items()
            }
        if mine.any():
            sensitivity[name] = _value(
                found.sensitivities[at, k], spread.sensitivities[at, k], tables.samples[mine].sum()
            )
    return MeasuredFactors(pressure, sensitivity)


def _find_factors(
    observations: Sequence[SlowdownObservation], tables: SlowdownTables, levels: Sequence[int]
) -> FactorMatrices:
    """Returns one factor, or two in the form that neighbours tell."""
    one = _fit(observations, tables, ONE_FACTOR, levels)
    predicted = 1 + (one.effects[..., 0][tables.victim] * tables.counts).sum(1)
    is_missed = np.abs(np.log(predicted / (1 + tables.extra))).mean() > SMALLEST_ERROR
    if is_missed and choose_profile_shape(observations, levels) == TWO_FACTORS:
        return purify(_fit(observations, tables, TWO_FACTORS, levels), tables.sources) or one
    return one


def _fit(
    observations: Sequence[SlowdownObservation], tables: SlowdownTables, shape: FactorShape, levels: Sequence[int]
) -> FactorMatrices:
    fitted = factors.fit(observations, shape, levels)
    layout = fitted.layout
    sensitivities, pressures = (np.exp(layout.factors(fitted.x, second)) for second in (0, 1))
    models = [layout.models.index(model) for model in tables.models]
    rows = [(layout.levels.index(percent), layout.models.index(source)) for source, percent in tables.sources]
    return FactorMatrices(sensitivities[0, models], np.array([pressures[row] for row in rows]))


def _tables(observations: Sequence[SlowdownObservation], levels: Sequence[int]) -> SlowdownTables:
    models = sorted({model for each in observations for model in each.run.models})
    beside = {neighbour for each in observations for neighbour in each.run.neighbours}
    parts = {percent: _split(percent, levels) for percent in {neighbour.sm_percent for neighbour in beside}}
    sources = sorted({(neighbour.model, at) for neighbour in beside for at, _ in parts[neighbour.sm_percent]})
    places, rows = ({each: at for at, each in enumerate(group)} for group in (sources, models))
    counts = np.zeros((len(observations), len(sources)))
    for row, each in enumerate(observations):
        for neighbour in each.run.neighbours:
            for at, weight in parts[neighbour.sm_percent]:
                counts[row, places[neighbour.model, at]] += weight
    return SlowdownTables(
        models,
        sources,
        np.array([rows[each.run.model] for each in observations], dtype=np.int64),
        counts,
        np.array([each.slowdown - 1 for each in observations]),
        np.array([float(each.samples) for each in observations]),
    )


def _split(sm_percent: int, levels: Sequence[int]) -> list[tuple[int, float]]:
    """Returns the levels around this SM% and how much each counts; itself without levels."""
    if not levels:
        return [(sm_percent, 1.0)]
    place = float(np.interp(sm_percent, levels, range(len(levels))))
    return [(level, 1 - abs(place - at)) for at, level in enumerate(levels) if abs(place - at) < 1]


def _spreads(tables: SlowdownTables, found: FactorMatrices) -> FactorMatrices:
    """Returns standard deviations: residual variance x inverse of the squares' curvature, some pressures held.

    The largest of each factor is its scale, so what is unsure of it is unsure of all others. Of two factors those that
    a pure neighbour lacks are held, too: they are what tells the factors apart.
    """
    models, sources = len(tables.models), len(tables.sources)
    runs, own, rank = np.arange(len(tables.extra)), found.sensitivities[tables.victim], found.pressures.shape[1]
    slopes = np.zeros((len(runs), models + sources, rank))
    slopes[runs, tables.victim] = tables.counts @ found.pressures
    slopes[:, models:] = tables.counts[:, :, None] * own[:, None]
    for k in range(rank):
        slopes[:, models + int(found.pressures[:, k].argmax()), k] = 0.0
        if rank > 1:
            pure = np.where(found.pressures[:, 1 - k] == 0, found.pressures[:, k], -1.0)
            slopes[:, models + int(pure.argmax()), 1 - k] = 0.0
    flat = slopes.reshape(len(runs), -1)
    residual = tables.extra - (own * (tables.counts @ found.pressures)).sum(1)
    free = int(np.linalg.matrix_rank(flat))
    variance = float(tables.samples @ residual**2) / max(1, len(residual) - free)
    curvature = flat.T @ (tables.samples[:, None] * flat)
    deviation = np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature)) * variance, 0.0)).reshape(-1, rank)
    return FactorMatrices(deviation[:models], deviation[models:])


def _value(mean: float, deviation: float, samples: float) -> SpreadValue:
    return SpreadValue(float(mean), float(mean + NINETY * deviation), int(samples))
