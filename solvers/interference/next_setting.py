"""Chooses which models to measure beside each other next: the setting after which all others are foreseen best.

slowdown = 1 + sum over factors of sensitivity x sum of the neighbours' pressures, linear around what is known so far.
Pressures of a model at different shares are alike; how far the rule itself is off counts as noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from solvers.interference.candidate import Floats
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation
from solvers.interference.profile_factors import pressure_and_sensitivity
from solvers.interference.pure_factors import COMPUTE

PRIOR = 0.5  # of a pressure and of a sensitivity
PRIOR_DEVIATION = 0.4
ALIKE_DOUBLINGS = 2.0  # of the share, over which a model's pressures are alike
LEAST_NOISE = 0.02  # of a slowdown
LAST_SETTINGS = 2  # that the rule must have foreseen from those before them
DIGITS = 9  # to which gains are compared, so that rounding decides nothing


@dataclass(frozen=True, slots=True, order=True)
class SharedCopy:
    """One of the copies that share a GPU."""

    model: str
    sm_percent: int
    batch: int = 1


@dataclass(frozen=True, slots=True, order=True)
class SharedSetting:
    """Copies on one GPU at once."""

    copies: tuple[SharedCopy, ...]

    @property
    def runs(self) -> list[SharedRun]:
        """Returns what is observed: each copy beside the others."""
        return [
            SharedRun(
                copy.model,
                copy.sm_percent,
                tuple(Neighbour(o.model, o.sm_percent) for number, o in enumerate(self.copies) if number != place),
            )
            for place, copy in enumerate(self.copies)
        ]


@dataclass(frozen=True, slots=True)
class SharedMeasurement:
    """A shared setting that was measured, and the slowdown of each of its copies."""

    setting: SharedSetting
    slowdowns: tuple[SlowdownObservation, ...]


def next_shared_setting(
    settings: Sequence[SharedSetting], measured: Sequence[SharedMeasurement], accuracy: float, most: int
) -> SharedSetting | None:
    """Returns the shared setting to measure next; None once slowdowns are foreseen to `accuracy`, or after `most`."""
    done = [found.setting for found in measured]
    waiting = [setting for setting in settings if setting not in set(done)]
    if not waiting or len(measured) >= most:
        return None
    rule = _Rule.of(settings, measured)
    uncovered = _not_yet_measured(waiting, done)
    is_foreseen = sqrt(2.0 / pi) * float(np.sqrt(rule.variances).mean()) <= accuracy
    if not uncovered and is_foreseen and _error_on_last(settings, measured) <= accuracy:
        return None
    known = Counter(copy for setting in done for copy in setting.copies)

    def worth(setting: SharedSetting) -> tuple[float, int]:
        gain = rule.gain(setting.runs) / len(setting.copies)  # more copies take longer
        return round(gain, DIGITS), -sum(known[copy] for copy in setting.copies)

    return max(uncovered or waiting, key=worth)  # the first of equals


def _not_yet_measured(waiting: Sequence[SharedSetting], measured: Sequence[SharedSetting]) -> list[SharedSetting]:
    """Returns settings with a pair of models that is not measured yet; once all are, those with such a share.

    Two models that leave each other alone at small shares would else count as known at large ones too.
    """
    known = {_models_of(setting) for setting in measured}
    if pairs := [setting for setting in waiting if len(setting.copies) == 2 and _models_of(setting) not in known]:
        return pairs
    shares = {(copy.model, copy.sm_percent) for setting in measured for copy in setting.copies}
    return [s for s in waiting if any((copy.model, copy.sm_percent) not in shares for copy in s.copies)]


def _error_on_last(settings: Sequence[SharedSetting], measured: Sequence[SharedMeasurement]) -> float:
    """Returns the mean share by which the rule, fitted without the last settings, misses the slowdowns in them.

    They were measured where the rule was least sure, so they show what it is worth where nothing is measured. The same
    models and shares at other batches stay in the fit: a campaign knows them, too.
    """
    before = _Rule.of(settings, measured[:-LAST_SETTINGS])
    last = [each for found in measured[-LAST_SETTINGS:] for each in found.slowdowns]
    return float(np.mean([abs(before.slowdown(each.run) / each.slowdown - 1) for each in last]))


def _models_of(setting: SharedSetting) -> tuple[str, ...]:
    return tuple(sorted(copy.model for copy in setting.copies))


@dataclass(frozen=True)
class _Rule:
    """The rule of slowdowns around the present estimates, and how unsure its parameters are."""

    models: list[str]
    sources: list[tuple[str, int]]
    sensitivities: Floats  # [model, factor]
    pressures: Floats  # [source, factor]
    covariance: Floats
    noise: float
    everything: Floats  # slopes of all that could be observed

    @classmethod
    def of(cls, settings: Sequence[SharedSetting], measured: Sequence[SharedMeasurement]) -> _Rule:
        observations = [each for found in measured for each in found.slowdowns]
        runs = [run for setting in settings for run in setting.runs]
        seen = [each.run for each in observations]
        models = sorted({model for run in (*runs, *seen) for model in run.models})
        sources = sorted({(n.model, n.sm_percent) for run in (*runs, *seen) for n in run.neighbours})
        found = pressure_and_sensitivity(observations)
        names = max((tuple(each.sensitivity) for each in found.values()), key=len, default=(COMPUTE,))
        sensitivities, pressures = (np.full((len(each), len(names)), PRIOR) for each in (models, sources))
        for at, model in enumerate(models):
            if model in found and (by_factor := found[model].sensitivity):
                sensitivities[at] = [by_factor[name].mean for name in names]
        for at, (model, percent) in enumerate(sources):
            if model in found and (at_share := found[model].pressures_at(percent)):
                pressures[at] = [at_share[name] for name in names]
        start = cls(
            models,
            sources,
            sensitivities,
            pressures,
            np.asarray(np.kron(_prior(len(models), sources), np.eye(len(names))), float),
            LEAST_NOISE,
            np.zeros((0, 0)),
        )
        everything = start._slopes(runs)
        if not observations:
            return cls(models, sources, sensitivities, pressures, start.covariance, LEAST_NOISE, everything)
        slopes = start._slopes(seen)
        predicted = np.array([start.slowdown(run) for run in seen])
        errors = np.array([each.slowdown for each in observations]) - predicted
        noise = max(LEAST_NOISE, float(np.sqrt(np.mean(errors**2))))
        inverse = np.linalg.inv(start.covariance) + slopes.T @ slopes / noise**2
        return cls(
            models, sources, sensitivities, pressures, np.asarray(np.linalg.inv(inverse), float), noise, everything
        )

    @property
    def variances(self) -> Floats:
        """Returns the uncertainty of each slowdown that could be observed."""
        found: Floats = np.einsum("ij,jk,ik->i", self.everything, self.covariance, self.everything)
        return np.maximum(found, 0.0)

    def gain(self, runs: Sequence[SharedRun]) -> float:
        """Returns by how much observing these lowers the mean variance of all that could be observed."""
        slopes = self._slopes(runs)
        cross = self.covariance @ slopes.T
        inner = slopes @ cross + self.noise**2 * np.eye(len(runs))
        lower = self.everything @ cross
        return float(np.mean(np.einsum("ij,jk,ik->i", lower, np.linalg.inv(inner), lower)))

    def slowdown(self, run: SharedRun) -> float:
        pressure = sum(self.pressures[self.sources.index((n.model, n.sm_percent))] for n in run.neighbours)
        return 1 + float((self.sensitivities[self.models.index(run.model)] * pressure).sum())

    def _slopes(self, runs: Sequence[SharedRun]) -> Floats:
        slopes = np.zeros((len(runs), len(self.models) + len(self.sources), self.pressures.shape[1]))
        for row, run in enumerate(runs):
            mine = self.models.index(run.model)
            for neighbour in run.neighbours:
                source = self.sources.index((neighbour.model, neighbour.sm_percent))
                slopes[row, mine] += self.pressures[source]
                slopes[row, len(self.models) + source] += self.sensitivities[mine]
        return slopes.reshape(len(runs), -1)


def _prior(models: int, sources: Sequence[tuple[str, int]]) -> Floats:
    size = models + len(sources)
    prior: Floats = PRIOR_DEVIATION**2 * np.eye(size)
    for row, (model, share) in enumerate(sources):
        for column, (other, at) in enumerate(sources):
            if model == other:
                alike = np.exp(-abs(np.log2(share / at)) / ALIKE_DOUBLINGS)
                prior[models + row, models + column] = PRIOR_DEVIATION**2 * alike
    return prior
