"""Low-rank factors: each model has pressures and sensitivities, never negative, by SM% where it was measured.

slowdown = 1 + (sum over factors of sensitivity x sum of the neighbours' pressures) ** exponent, the exponent by SM%.
One factor, one sensitivity at all SM% and exponent 1 is the product's own formula. A model that was never measured
is the average model. Fitted by MAP: logarithms of the factors scatter around their mean as models do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from solvers.interference.candidate import Floats
from solvers.interference.factor_layout import Conditions, FactorLayout, FactorShape, Ints, conditions
from solvers.interference.observation import SharedRun, SlowdownObservation

FIRST_NOISE, LEAST_NOISE = 0.1, 0.01  # standard deviation of a measured logarithm
TINY = 1e-9
SEED = 0  # of the start: the same observations are fitted alike
ONE_FACTOR, TWO_FACTORS = FactorShape(1), FactorShape(2)  # the shapes that a Profile can state
LARGEST_LOG, LARGEST_EXPONENT_LOG = 8.0, 1.2


@dataclass(frozen=True)
class FittedFactors:
    """Factors of models by SM%, with exponents."""

    layout: FactorLayout
    x: Floats

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        here = [(r.model, r.sm_percent, [(n.model, n.sm_percent) for n in r.neighbours]) for r in runs]
        found = self._alone_to_shared(here)
        relative = [at for at, run in enumerate(runs) if run.against is not None]
        if relative:
            there = [(runs[at].model, int(runs[at].against or 0)) for at in relative]
            found[relative] -= self._alone_to_shared(
                [
                    (m, sm, [(n.model, sm) for n in runs[at].neighbours])
                    for at, (m, sm) in zip(relative, there, strict=True)
                ]
            )
            bases = dict(zip(self.layout.bases, self.x[self.layout.size - len(self.layout.bases) :], strict=True))
            usual = self._usual_bases(bases)
            for at, (model, against) in zip(relative, there, strict=True):
                percent = runs[at].sm_percent
                found[at] += bases.get((model, percent, against), usual.get((percent, against), 0.0))
        return found

    def _usual_bases(self, bases: dict[tuple[str, int, int], float]) -> dict[tuple[int, int], float]:
        kinds = {(percent, against) for _, percent, against in bases}
        return {kind: float(np.mean([v for (_, p, a), v in bases.items() if (p, a) == kind])) for kind in kinds}

    def _alone_to_shared(self, runs: Sequence[tuple[str, int, Sequence[tuple[str, int]]]]) -> Floats:
        at = conditions(self.layout, runs)
        logs = [self.layout.factors(self.x, second) for second in (0, 1)]
        (sensitivities, pressures), usual = (np.exp(each) for each in logs), [np.exp(each.mean(1)) for each in logs]
        pressure = at.counts @ pressures.reshape(-1, self.layout.shape.rank) + at.strangers @ usual[1]
        low = at.level.astype(np.int64)
        high = np.minimum(low + 1, len(self.layout.levels) - 1)
        share = (at.level - low)[:, None]
        known = at.victim[:, None] >= 0
        at_low, at_high = (np.where(known, sensitivities[each, at.victim], usual[0][each]) for each in (low, high))
        own = at_low * (1 - share) + at_high * share
        exponents = np.exp(self.x[self.layout.exponents_at : self.layout.exponents_at + len(self.layout.levels)])
        exponent = exponents[low] * (1 - share[:, 0]) + exponents[high] * share[:, 0]
        found: Floats = np.log1p(((own * pressure).sum(1)) ** exponent)
        return found


@dataclass(frozen=True, slots=True)
class FactorData:
    """Observations as two lists of conditions, shared and, where relative, the one they are relative to."""

    here: Conditions
    there: Conditions | None
    is_relative: npt.NDArray[np.bool_]
    base: Ints  # of relative ones
    logs: Floats
    weights: Floats


def _data(layout: FactorLayout, observations: Sequence[SlowdownObservation]) -> FactorData:
    runs = [each.run for each in observations]
    here = conditions(layout, [(r.model, r.sm_percent, [(n.model, n.sm_percent) for n in r.neighbours]) for r in runs])
    relative = [run for run in runs if run.against is not None]
    there = None
    if relative:
        asked = [(r.model, int(r.against or 0)) for r in relative]
        pairs = zip(relative, asked, strict=True)
        there = conditions(layout, [(m, sm, [(n.model, sm) for n in r.neighbours]) for r, (m, sm) in pairs])
    places = {base: at for at, base in enumerate(layout.bases)}
    base = np.array([places[r.model, r.sm_percent, int(r.against or 0)] for r in relative], dtype=np.int64)
    weights = np.array([float(each.samples) for each in observations])
    logs = np.log([each.slowdown for each in observations])
    is_relative = np.array([run.against is not None for run in runs])
    return FactorData(here, there, is_relative, base, logs, weights / weights.mean())


def fit(observations: Sequence[SlowdownObservation], shape: FactorShape, levels: Sequence[int] = ()) -> FittedFactors:
    """Fits factors of this shape; the noise is estimated from the residuals of the fit before.

    `levels` are the SM% at which factors have values, linear between them; without any all that were measured.
    """
    layout, data = layout_and_data(observations, shape, levels)
    x, noise = None, FIRST_NOISE
    for rounds in (60, 240, 240):
        x, _ = search(layout, data, noise, rounds, x)
        left = predicted_logs(x, layout, data) - data.logs
        noise = max(LEAST_NOISE, float(np.sqrt((data.weights * left**2).mean())))
    assert x is not None
    return FittedFactors(layout, x)


def layout_and_data(
    observations: Sequence[SlowdownObservation], shape: FactorShape, levels: Sequence[int] = ()
) -> tuple[FactorLayout, FactorData]:
    """Returns which parameters these observations have, and the observations as arrays."""
    if all(len(each.run.neighbours) < 2 for each in observations):
        shape = replace(shape, has_exponent=False)  # one neighbour at a time tells nothing about sums
    layout = _layout(observations, shape, levels)
    return layout, _data(layout, observations)


def search(
    layout: FactorLayout, data: FactorData, noise: float, rounds: int, start: Floats | None = None
) -> tuple[Floats, float]:
    """Returns the likeliest parameters with this noise, and their loss: squares + noise^2 x those of the prior."""
    from scipy.optimize import minimize  # a fifth of a second, which only a fit needs

    if start is None:
        start = 0.1 * np.random.default_rng(SEED).standard_normal(layout.size)
        start[layout.exponents_at :] = 0.0
    found = minimize(
        _loss,
        start,
        args=(layout, data, layout.prior_weights() * noise**2),
        jac=True,
        method="L-BFGS-B",
        bounds=_bounds(layout),
        options={"maxiter": rounds},
    )
    return found.x, float(found.fun)


def predicted_logs(x: Floats, layout: FactorLayout, data: FactorData) -> Floats:
    """Returns the logarithms of slowdowns that these parameters give."""
    return _predict(x, layout, data)[0]


def _bounds(layout: FactorLayout) -> list[tuple[float, float]]:
    """Returns limits far outside what was ever measured; they keep the search from overflowing."""
    factors = [(-LARGEST_LOG, LARGEST_LOG)] * layout.exponents_at
    most = LARGEST_EXPONENT_LOG if layout.shape.has_exponent else 0.0
    exponents = [(-most, most)] * len(layout.levels)
    return [*factors, *exponents, *([(-LARGEST_LOG, LARGEST_LOG)] * len(layout.bases))]


def _layout(observations: Sequence[SlowdownObservation], shape: FactorShape, levels: Sequence[int]) -> FactorLayout:
    models = sorted({model for each in observations for model in each.run.models})
    measured = {each.run.sm_percent for each in observations}
    measured |= {neighbour.sm_percent for each in observations for neighbour in each.run.neighbours}
    measured |= {each.run.against for each in observations if each.run.against is not None}
    bases = {
        (each.run.model, each.run.sm_percent, each.run.against) for each in observations if each.run.against is not None
    }
    return FactorLayout(tuple(models), tuple(sorted(levels or measured)), tuple(sorted(bases)), shape)


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """The arrays of one list of conditions that the slopes need."""

    level: Ints
    pressure: Floats  # [run, factor]
    effect: Floats  # sensitivity x pressure
    grown: Floats  # effect ** exponent


def _forward(at: Conditions, sensitivities: Floats, pressures: Floats, exponents: Floats) -> ForwardPass:
    level = at.level.astype(np.int64)
    pressure = at.counts @ pressures.reshape(-1, pressures.shape[2])
    effect = (sensitivities[level, at.victim] * pressure).sum(1) + TINY
    return ForwardPass(level, pressure, effect, effect ** exponents[level])


def _predict(x: Floats, layout: FactorLayout, data: FactorData) -> tuple[Floats, ForwardPass, ForwardPass | None]:
    sensitivities, pressures = (np.exp(layout.factors(x, second)) for second in (0, 1))
    exponents = np.exp(x[layout.exponents_at : layout.exponents_at + len(layout.levels)])
    here = _forward(data.here, sensitivities, pressures, exponents)
    logs = np.log1p(here.grown)
    there = None
    if data.there is not None:
        there = _forward(data.there, sensitivities, pressures, exponents)
        logs[data.is_relative] += x[layout.size - len(layout.bases) :][data.base] - np.log1p(there.grown)
    return logs, here, there


def _loss(x: Floats, layout: FactorLayout, data: FactorData, prior: Floats) -> tuple[float, Floats]:
    """Returns the sum of weighted squares with the prior, and its slopes."""
    logs, here, there = _predict(x, layout, data)
    left = logs - data.logs
    slope = 2 * data.weights * left
    sensitivities, pressures = (np.exp(layout.factors(x, second)) for second in (0, 1))
    exponents = np.exp(x[layout.exponents_at : layout.exponents_at + len(layout.levels)])
    to_sensitivities, to_pressures = np.zeros(sensitivities.shape), np.zeros(pressures.shape)
    to_exponents = np.zeros(len(layout.levels))
    passes = [(data.here, here, slope)]
    if data.there is not None and there is not None:
        passes.append((data.there, there, -slope[data.is_relative]))
    for at, forward, down in passes:
        grown = down * forward.grown / (1 + forward.grown)
        np.add.at(to_exponents, forward.level, grown * np.log(forward.effect) * exponents[forward.level])
        to_effect = (grown * exponents[forward.level] / forward.effect)[:, None]
        np.add.at(to_sensitivities, (forward.level, at.victim), to_effect * forward.pressure)
        to_pressures += (at.counts.T @ (to_effect * sensitivities[forward.level, at.victim])).reshape(pressures.shape)
    to_bases = np.zeros(len(layout.bases))
    np.add.at(to_bases, data.base, slope[data.is_relative])
    found = np.concatenate(
        (
            layout.factor_gradient(to_sensitivities * sensitivities, 0),
            layout.factor_gradient(to_pressures * pressures, 1),
            to_exponents,
            to_bases,
        )
    )
    return float(data.weights @ left**2 + prior @ x**2), found + 2 * prior * x


def fit_scalar(observations: Sequence[SlowdownObservation]) -> FittedFactors:
    """Fits the product's formula: one pressure by SM%, one sensitivity."""
    return fit(observations, ONE_FACTOR)


def fit_two_linear_factors(observations: Sequence[SlowdownObservation]) -> FittedFactors:
    """Fits what a Profile can state at most: two pressures by SM%, two sensitivities."""
    return fit(observations, TWO_FACTORS)


def fit_one_factor(observations: Sequence[SlowdownObservation]) -> FittedFactors:
    """Fits one factor whose sensitivity and exponent differ by SM%."""
    return fit(observations, FactorShape(1, True, True))


def fit_two_factors(observations: Sequence[SlowdownObservation]) -> FittedFactors:
    """Fits two factors, as compute and memory, with exponents by SM%."""
    return fit(observations, FactorShape(2, True, True))
