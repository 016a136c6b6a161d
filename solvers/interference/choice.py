"""Chooses a model of interference by cross-validation: whole mixes of models are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from solvers.interference import factors
from solvers.interference.candidate import FittedInterference, Floats, InterferenceCandidate
from solvers.interference.evidence import evidence_weights
from solvers.interference.factor_layout import FactorShape
from solvers.interference.inss import fit_inss
from solvers.interference.observation import SharedRun, SlowdownObservation, WrongObservation

Thing = TypeVar("Thing")
SEED = 0  # of folds and samples: the same observations choose the same model
FOLDS = 4
LEAST_MIXES = 4  # with fewer different mixes what a Profile can state is averaged by evidence
PROFILE_FOLDS = 12  # of mixes left out where only two shapes are compared
SURE = 0.95  # of the evidence: how likely two factors must be
SMALLEST_ERROR = 0.01  # of a logarithm: what is nearer counts as exact
MOST_TO_COMPARE = 2000  # observations; choosing among candidates needs no more

SCALAR = InterferenceCandidate("scalar", factors.fit_scalar, takes_relative=True)
TWO_LINEAR = InterferenceCandidate("two linear factors", factors.fit_two_linear_factors, takes_relative=True)
CANDIDATES = (
    SCALAR,
    TWO_LINEAR,
    InterferenceCandidate("one factor", factors.fit_one_factor, takes_relative=True, bends=True),
    InterferenceCandidate("two factors", factors.fit_two_factors, takes_relative=True, bends=True),
    InterferenceCandidate("InSS", fit_inss),
)


@dataclass(frozen=True)
class Blend:
    """Several fits, averaged in logarithms."""

    parts: Sequence[tuple[float, FittedInterference]]  # with weights that add up to 1

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        found: Floats = sum((weight * fitted.log_slowdowns(runs) for weight, fitted in self.parts), np.zeros(len(runs)))
        return found


@dataclass(frozen=True)
class ChosenInterference:
    """A fit, what it is made of, and the left-out errors (of logarithms) that chose it."""

    method: str
    fitted: FittedInterference
    errors: Mapping[str, float] = field(default_factory=dict)  # mean absolute, by candidate
    left_out: Floats = field(default_factory=lambda: np.zeros(0))  # its own, predicted - measured

    @property
    def error(self) -> float | None:
        """Returns the mean absolute error of left-out logarithms: about the share by which a slowdown is wrong."""
        return float(np.abs(self.left_out).mean()) if len(self.left_out) else None


def fit(
    observations: Sequence[SlowdownObservation], candidates: Sequence[InterferenceCandidate] = CANDIDATES
) -> ChosenInterference:
    """Returns the simplest candidate that predicts left-out mixes of one GPU type as well as any."""
    if not observations:
        raise WrongObservation("no observation to fit")
    if len({each.run.mix for each in observations}) < LEAST_MIXES:
        return _weigh_by_evidence(observations)
    suited = [each for each in candidates if each.suits(observations)]
    sample = sample_mixes(observations)
    left, mixes = _left_out_mixes(sample, suited, FOLDS)
    errors = {name: float(np.abs(each).mean()) for name, each in left.items() if len(each)}
    best = _simplest(suited, left, mixes)
    return ChosenInterference(best.name, best.fit(observations), errors, left[best.name])


def _weigh_by_evidence(observations: Sequence[SlowdownObservation]) -> ChosenInterference:
    """Returns what a Profile can state, averaged: too few mixes to leave any out, so all of them must count."""
    shapes = {SCALAR: factors.ONE_FACTOR, TWO_LINEAR: factors.TWO_FACTORS}
    return average(observations, list(shapes), evidence_weights(observations, list(shapes.values())))


def choose_profile_shape(observations: Sequence[SlowdownObservation], levels: Sequence[int] = ()) -> FactorShape:
    """Returns two factors where the evidence is sure of them and left-out mixes do not surely speak against, else one.

    Evidence alone would take two to explain whatever the formula cannot; what that is worth shows in left-out mixes.
    Those alone hide too much: without a pair nothing tells how alike two models are.
    """
    sample = sample_mixes(observations)
    mixes = sorted({each.run.mix for each in sample})
    one, two = factors.ONE_FACTOR, factors.TWO_FACTORS
    if len(mixes) < LEAST_MIXES or evidence_weights(sample, [one, two], levels)[1] < SURE:
        return one

    def fit_one(seen: Sequence[SlowdownObservation]) -> FittedInterference:
        return factors.fit(seen, one, levels)

    def fit_two(seen: Sequence[SlowdownObservation]) -> FittedInterference:
        return factors.fit(seen, two, levels)

    candidates = InterferenceCandidate(TWO_LINEAR.name, fit_two), InterferenceCandidate(SCALAR.name, fit_one)
    left, order = _left_out_mixes(sample, candidates, PROFILE_FOLDS)
    return two if _simplest(candidates, left, order) is candidates[0] else one


def sample_mixes(observations: Sequence[SlowdownObservation]) -> Sequence[SlowdownObservation]:
    """Returns whole mixes, enough to compare candidates on."""
    if len(observations) <= MOST_TO_COMPARE:
        return observations
    mixes = sorted({each.run.mix for each in observations})
    size = max(LEAST_MIXES, len(mixes) * MOST_TO_COMPARE // len(observations))
    kept = {mixes[at] for at in np.random.default_rng(SEED).permutation(len(mixes))[:size]}
    return [each for each in observations if each.run.mix in kept]


def _simplest(
    candidates: Sequence[InterferenceCandidate], left: Mapping[str, Floats], mixes: Sequence[tuple[str, ...]]
) -> InterferenceCandidate:
    """Returns the first candidate, simple ones first, that the best does not surely beat: within a standard error.

    What is wrong of one observation of a mix is wrong of its others, too, so whole mixes are what varies.
    """
    judged = [each for each in candidates if len(left[each.name])] or list(candidates[:1])
    absolute = {each.name: np.maximum(np.abs(left[each.name]), SMALLEST_ERROR) for each in judged}
    best = min(judged, key=lambda each: float(absolute[each.name].sum()))
    places = {mix: place for place, mix in enumerate(sorted(set(mixes)))}
    of_mix = [places[mix] for mix in mixes]
    for each in judged:
        worse = absolute[each.name] - absolute[best.name]
        if not len(worse) or worse.sum() <= np.sqrt((np.bincount(of_mix, worse - worse.mean()) ** 2).sum()):
            return each
    return best


def draw_folds(things: Sequence[Thing], count: int) -> list[set[Thing]]:
    """Returns the things in so many parts, drawn from a seed."""
    order = np.random.default_rng(SEED).permutation(len(things))
    return [{things[at] for at in order[fold::count]} for fold in range(min(count, len(things)))]


def _left_out_mixes(
    observations: Sequence[SlowdownObservation],
    candidates: Sequence[InterferenceCandidate],
    folds: int,
) -> tuple[dict[str, Floats], list[tuple[str, ...]]]:
    """Returns by candidate predicted - measured logarithms of left-out mixes, and which mix each is of."""
    mixes = sorted({each.run.mix for each in observations})
    out = [[each.run.mix in fold for each in observations] for fold in draw_folds(mixes, folds)]
    left = {each.name: leave_out(observations, each, out) for each in candidates}
    return left, [each.run.mix for fold in out for each, is_out in zip(observations, fold, strict=True) if is_out]


def leave_out(
    observations: Sequence[SlowdownObservation],
    candidate: InterferenceCandidate,
    folds: Sequence[Sequence[bool]],
) -> Floats:
    """Returns predicted - measured logarithms of what each fold leaves out."""
    found = [np.zeros(0)]
    for fold in folds:
        seen = [each for each, is_out in zip(observations, fold, strict=True) if not is_out]
        judged = [each for each, is_out in zip(observations, fold, strict=True) if is_out]
        if seen and judged:
            predicted = candidate.fit(seen).log_slowdowns([each.run for each in judged])
            found.append(predicted - np.log([each.slowdown for each in judged]))
    return np.concatenate(found)


def average(
    observations: Sequence[SlowdownObservation],
    candidates: Sequence[InterferenceCandidate],
    weights: Floats,
) -> ChosenInterference:
    """Returns the candidates' fits, averaged by these weights."""
    parts = [(float(weight), each.fit(observations)) for weight, each in zip(weights, candidates, strict=True)]
    method = "blend: " + ", ".join(
        f"{each.name} {weight:.2f}"
        for weight, each in sorted(zip(weights, candidates, strict=True), key=lambda p: -p[0])
    )
    return ChosenInterference(method, Blend(parts))
