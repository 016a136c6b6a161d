"""Models never measured beside others, from their traits: a Gaussian process over effects of residents.

The logarithm of a slowdown is a mean, an effect of the model itself, effects of its neighbours that add up, and, with
`pairs`, products of both. Effects are alike where traits are alike, where models are akin, and where it is the same
model; how much each counts is found by maximum likelihood with a weak prior, so traits that say nothing fade out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.interference.traits import Traits
from solvers.gaussian import fit_gaussian
from solvers.interference.candidate import Floats
from solvers.interference.observation import SharedRun, SlowdownObservation

SM_REACH = 50.0  # SM% over which an effect stays alike
USUAL_LOG, LOG_SPREAD = -2.0, 3.0  # prior of the logarithm of a variance, relative to the data's
SMALLEST_LOG, LARGEST_LOG = -9.0, 4.0
ROUNDS = 40
JITTER = 1e-6


@dataclass(frozen=True)
class Likeness:
    """The likeness of models: by traits, by family, and itself."""

    scaled: dict[str, Floats]
    traits: Traits

    def kernels(self, left: Sequence[tuple[str, int]], right: Sequence[tuple[str, int]]) -> list[Floats]:
        """Returns the three likenesses of (model, SM%) on the left with those on the right."""
        sm_gap = np.subtract.outer([sm for _, sm in left], [sm for _, sm in right]) / SM_REACH
        close = np.exp(-0.5 * sm_gap**2)
        a, b = (np.array([self.scaled[model] for model, _ in side]) for side in (left, right))
        # The length is the square root of how many traits there are: about the distance of two models at random.
        gap = ((a[:, None] - b[None]) ** 2).sum(2) / max(1, a.shape[1])
        kin = np.equal.outer(*([self.traits.family(model) for model, _ in side] for side in (left, right)))
        same = np.equal.outer(*([model for model, _ in side] for side in (left, right)))
        return [np.exp(-0.5 * gap) * close, kin * close, same * close]


def likeness(traits: Traits) -> Likeness:
    """Returns the likeness of models whose traits are known, each trait scaled to its own spread."""
    names = sorted(traits.numbers)
    table = np.array([traits.numbers[name] for name in names], dtype=float).reshape(len(names), -1)
    spread = table.std(0)
    scaled = (table - table.mean(0)) / np.where(spread > 0, spread, 1.0)
    return Likeness(dict(zip(names, scaled, strict=True)), traits)


@dataclass(frozen=True)
class RunKernels:
    """Kernels between two lists of runs, from likeness of the residents in them."""

    like: Likeness
    pairs: bool

    def between(self, left: Sequence[SharedRun], right: Sequence[SharedRun]) -> list[Floats]:
        """Returns kernels of the model itself, of its neighbours, and of both together."""
        residents = [
            sorted(
                {(r.model, r.sm_percent) for r in side} | {(n.model, n.sm_percent) for r in side for n in r.neighbours}
            )
            for side in (left, right)
        ]
        tables = self.like.kernels(*residents)
        rows, columns = (
            _places(side, {each: at for at, each in enumerate(found)})
            for side, found in zip((left, right), residents, strict=True)
        )
        own = [table[np.ix_(rows[0], columns[0])] for table in tables]
        beside = [rows[1] @ table @ columns[1].T for table in tables]
        both = [own[0] * beside[0], own[2] * beside[2]] if self.pairs else []
        return own + beside + both


def _places(runs: Sequence[SharedRun], index: dict[tuple[str, int], int]) -> tuple[list[int], Floats]:
    counts = np.zeros((len(runs), len(index)))
    for row, run in enumerate(runs):
        for each in run.neighbours:
            counts[row, index[each.model, each.sm_percent]] += 1
    return [index[run.model, run.sm_percent] for run in runs], counts


@dataclass(frozen=True)
class FittedLikeness:
    """The process after it has seen observations."""

    kernels: RunKernels
    runs: tuple[SharedRun, ...]
    variances: Floats
    mean: float
    scale: float
    solved: Floats

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        parts = zip(self.variances, self.kernels.between(runs, self.runs), strict=False)
        covariance = sum((variance * part for variance, part in parts), np.zeros((len(runs), len(self.runs))))
        found: Floats = self.mean + self.scale * covariance @ self.solved
        return np.maximum(found, 0.0)  # a neighbour speeds nothing up


def fit(observations: Sequence[SlowdownObservation], traits: Traits, pairs: bool = False) -> FittedLikeness:
    """Fits variances by maximum likelihood."""
    from scipy.optimize import minimize  # a fifth of a second, which only a fit needs

    kernels = RunKernels(likeness(traits), pairs)
    runs = tuple(each.run for each in observations)
    logs = np.log([each.slowdown for each in observations])
    mean, scale = float(logs.mean()), float(logs.std()) or 1.0
    target = (logs - mean) / scale
    noise = 1 / np.sqrt([float(each.samples) for each in observations])
    parts = [*kernels.between(runs, runs), np.diag(noise / noise.mean())]
    first = np.full(len(parts), USUAL_LOG)
    found = minimize(
        _surprise,
        first,
        args=(parts, target),
        jac=True,
        method="L-BFGS-B",
        bounds=[(SMALLEST_LOG, LARGEST_LOG)] * len(parts),
        options={"maxiter": ROUNDS},
    )
    variances = np.exp(found.x)
    covariance = sum((v * part for v, part in zip(variances, parts, strict=True)), JITTER * np.eye(len(runs)))
    return FittedLikeness(kernels, runs, variances[:-1], mean, scale, fit_gaussian(covariance, target).weights)


def _surprise(x: Floats, parts: Sequence[Floats], target: Floats) -> tuple[float, Floats]:
    """Returns the negative logarithm of likelihood x prior, and its slopes."""
    variances = np.exp(x)
    covariance = sum((v * part for v, part in zip(variances, parts, strict=True)), JITTER * np.eye(len(target)))
    seen = fit_gaussian(covariance, target)
    if not np.isfinite(seen.log_likelihood):
        return 1e12, np.zeros(len(x))
    spread = seen.inverse - np.outer(seen.weights, seen.weights)
    slopes = np.array([0.5 * v * float((spread * part).sum()) for v, part in zip(variances, parts, strict=True)])
    away = (x - USUAL_LOG) / LOG_SPREAD
    value = 0.5 * float(away @ away) - float(seen.log_likelihood)
    return value, slopes + away / LOG_SPREAD
