"""Chooses models of interference by cross-validation: the best for models that were measured, a blend for all others.

Whole mixes are left out to choose for measured models. For models never measured, whole families are left out; there
are often few, and picking one winner would follow chance: candidates are averaged, more sharply with more families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from solvers.interference import factors, factors_by_traits, likeness, papers
from solvers.interference.candidate import FittedInterference, Floats, InterferenceCandidate
from solvers.interference.evidence import evidence_weights
from solvers.interference.factor_layout import FactorShape
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation, Traits, WrongObservation

Thing = TypeVar("Thing")
SEED = 0  # of folds and samples: the same observations choose the same model
FOLDS = 4
LEAST_MIXES = 4  # with fewer different mixes what a Profile can state is averaged by evidence
PROFILE_FOLDS = 12  # of mixes left out where only two shapes are compared
SURE = 0.95  # of the evidence: how likely two factors must be
LEAST_FAMILIES = 3
SMALLEST_ERROR = 0.01  # of a logarithm: what is nearer counts as exact
MOST_TO_COMPARE = 2000  # observations; choosing among candidates needs no more

SCALAR = InterferenceCandidate("scalar", factors.fit_scalar, takes_relative=True)
TWO_LINEAR = InterferenceCandidate("two linear factors", factors.fit_two_linear_factors, takes_relative=True)
CANDIDATES = (
    SCALAR,
    TWO_LINEAR,
    InterferenceCandidate("one factor", factors.fit_one_factor, takes_relative=True, bends=True),
    InterferenceCandidate("two factors", factors.fit_two_factors, takes_relative=True, bends=True),
    InterferenceCandidate("scalar by traits", factors_by_traits.fit_scalar, needs_traits=True, takes_relative=True),
    InterferenceCandidate(
        "two linear factors by traits", factors_by_traits.fit_two_linear_factors, needs_traits=True, takes_relative=True
    ),
    InterferenceCandidate("InSS", papers.fit_inss),
    InterferenceCandidate("OLTunes", papers.fit_affinity, needs_ratios=True),
    InterferenceCandidate("Mudi", papers.fit_mudi, needs_traits=True),
    InterferenceCandidate("likeness", likeness.fit, needs_traits=True, most_observations=1200),
    InterferenceCandidate("likeness of pairs", likeness.fit_with_pairs, needs_traits=True, most_observations=1200),
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


@dataclass(frozen=True)
class InterferenceModel:
    """Predicts slowdowns on one GPU type, of models measured beside others, and of models known alone only.

    Each kind is chosen and fitted when it is first asked for."""

    observations: Sequence[SlowdownObservation]
    traits: Traits
    candidates: Sequence[InterferenceCandidate]

    @cached_property
    def models(self) -> frozenset[str]:
        return frozenset(model for each in self.observations for model in each.run.models)

    @cached_property
    def average(self) -> ChosenInterference:
        """Returns the average model, for models of which nothing is known."""
        sample = _sample(self.observations)
        return ChosenInterference(SCALAR.name, SCALAR.fit(sample, self.traits))

    @cached_property
    def measured(self) -> ChosenInterference:
        """Returns the simplest candidate that predicts left-out mixes as well as any."""
        if len({each.run.mix for each in self.observations}) < LEAST_MIXES:
            return self._weighed
        sample = _sample(self.observations)
        left, mixes = _left_out_mixes(sample, self.traits, self.candidates, FOLDS)
        errors = {name: float(np.abs(each).mean()) for name, each in left.items() if len(each)}
        best = _simplest(self.candidates, left, mixes)
        return ChosenInterference(best.name, best.fit(self.observations, self.traits), errors, left[best.name])

    @cached_property
    def _weighed(self) -> ChosenInterference:
        """Returns what a Profile can state, averaged: too few mixes to leave any out, so all of them must count."""
        shapes = {SCALAR: factors.ONE_FACTOR, TWO_LINEAR: factors.TWO_FACTORS}
        weights = evidence_weights(self.observations, list(shapes.values()))
        return _average(self.observations, self.traits, list(shapes), weights)

    @cached_property
    def unmeasured(self) -> ChosenInterference:
        """Returns all candidates, weighted by how well they predict left-out families."""
        family = self.traits.family
        families = sorted({family(model) for model in self.models})
        if len(families) < LEAST_FAMILIES or not self.traits.numbers.keys() >= self.models:
            return self.average
        sample = _sample(self.observations)
        folds = _folds(families, FOLDS)
        out = [[any(family(model) in fold for model in each.run.models) for each in sample] for fold in folds]
        return _blend(self.observations, sample, self.traits, self.candidates, out, len(families))

    def choice(self, run: SharedRun) -> ChosenInterference:
        """Returns what predicts this run."""
        if run.models <= self.models:
            return self.measured
        return self.unmeasured if run.models <= self.traits.numbers.keys() else self.average

    def slowdown(self, model: str, sm_percent: int, neighbours: Sequence[Neighbour]) -> float:
        """Returns how many times longer the model takes beside these neighbours than alone; 1 without any."""
        if not neighbours:
            return 1.0
        return max(1.0, float(np.exp(self.log_slowdowns([SharedRun(model, sm_percent, tuple(neighbours))])[0])))

    def quantile(self, model: str, sm_percent: int, neighbours: Sequence[Neighbour], quantile: float) -> float:
        """Returns the slowdown that is not exceeded with this probability, by the errors of left-out mixes."""
        if not neighbours:
            return 1.0
        run = SharedRun(model, sm_percent, tuple(neighbours))
        chosen = self.choice(run)
        above = float(np.quantile(-chosen.left_out, quantile)) if len(chosen.left_out) else 0.0
        return max(1.0, float(np.exp(chosen.fitted.log_slowdowns([run])[0] + above)))

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        """Predicts the logarithms of many runs' slowdowns at once."""
        found = np.zeros(len(runs))
        choices = [self.choice(run) for run in runs]
        for chosen in {id(each): each for each in choices}.values():
            mine = [at for at, each in enumerate(choices) if each is chosen]
            found[mine] = chosen.fitted.log_slowdowns([runs[at] for at in mine])
        return found


def fit(
    observations: Sequence[SlowdownObservation],
    traits: Traits | None = None,
    candidates: Sequence[InterferenceCandidate] = CANDIDATES,
) -> InterferenceModel:
    """Fits the candidates that suit these observations of one GPU type, and chooses."""
    if not observations:
        raise WrongObservation("no observation to fit")
    known = traits or Traits()
    suited = [each for each in candidates if each.suits(observations, known)] or [SCALAR]
    return InterferenceModel(observations, known, suited)


def choose_profile_shape(observations: Sequence[SlowdownObservation], levels: Sequence[int] = ()) -> FactorShape:
    """Returns two factors where the evidence is sure of them and left-out mixes do not surely speak against, else one.

    Evidence alone would take two to explain whatever the formula cannot; what that is worth shows in left-out mixes.
    Those alone hide too much: without a pair nothing tells how alike two models are.
    """
    sample = _sample(observations)
    mixes = sorted({each.run.mix for each in sample})
    one, two = factors.ONE_FACTOR, factors.TWO_FACTORS
    if len(mixes) < LEAST_MIXES or evidence_weights(sample, [one, two], levels)[1] < SURE:
        return one

    def fit_one(seen: Sequence[SlowdownObservation], traits: Traits) -> FittedInterference:
        return factors.fit(seen, one, levels)

    def fit_two(seen: Sequence[SlowdownObservation], traits: Traits) -> FittedInterference:
        return factors.fit(seen, two, levels)

    candidates = InterferenceCandidate(TWO_LINEAR.name, fit_two), InterferenceCandidate(SCALAR.name, fit_one)
    left, order = _left_out_mixes(sample, Traits(), candidates, PROFILE_FOLDS)
    return two if _simplest(candidates, left, order) is candidates[0] else one


def _sample(observations: Sequence[SlowdownObservation]) -> Sequence[SlowdownObservation]:
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


def _folds(things: Sequence[Thing], count: int) -> list[set[Thing]]:
    order = np.random.default_rng(SEED).permutation(len(things))
    return [{things[at] for at in order[fold::count]} for fold in range(min(count, len(things)))]


def _left_out_mixes(
    observations: Sequence[SlowdownObservation],
    traits: Traits,
    candidates: Sequence[InterferenceCandidate],
    folds: int,
) -> tuple[dict[str, Floats], list[tuple[str, ...]]]:
    """Returns by candidate predicted - measured logarithms of left-out mixes, and which mix each is of."""
    mixes = sorted({each.run.mix for each in observations})
    out = [[each.run.mix in fold for each in observations] for fold in _folds(mixes, folds)]
    left = {each.name: _left_out(observations, traits, each, out) for each in candidates}
    return left, [each.run.mix for fold in out for each, is_out in zip(observations, fold, strict=True) if is_out]


def _left_out(
    observations: Sequence[SlowdownObservation],
    traits: Traits,
    candidate: InterferenceCandidate,
    folds: Sequence[Sequence[bool]],
) -> Floats:
    """Returns predicted - measured logarithms of what each fold leaves out."""
    found = [np.zeros(0)]
    for fold in folds:
        seen = [each for each, is_out in zip(observations, fold, strict=True) if not is_out]
        judged = [each for each, is_out in zip(observations, fold, strict=True) if is_out]
        if seen and judged:
            predicted = candidate.fit(seen, traits).log_slowdowns([each.run for each in judged])
            found.append(predicted - np.log([each.slowdown for each in judged]))
    return np.concatenate(found)


def _blend(
    observations: Sequence[SlowdownObservation],
    sample: Sequence[SlowdownObservation],
    traits: Traits,
    candidates: Sequence[InterferenceCandidate],
    folds: Sequence[Sequence[bool]],
    families: int,
) -> ChosenInterference:
    left = {each.name: _left_out(sample, traits, each, folds) for each in candidates}
    if not all(len(each) for each in left.values()):
        return ChosenInterference(SCALAR.name, SCALAR.fit(observations, traits))
    # The likelihood of normal errors, were each family one observation: few families average, many choose. Families
    # differ in how far anything foresees them, so each has its own spread, lest the wildest decide alone.
    ends = np.cumsum([sum(fold) for fold in folds if any(fold) and not all(fold)])
    by_fold = [np.split(left[each.name] ** 2, ends[:-1]) for each in candidates]
    spread = np.array([[max(1e-12, float(squares.mean())) for squares in each] for each in by_fold])
    precision = np.exp(np.log(spread.min(0) / spread).mean(1) * families / 2)
    weights = precision / precision.sum()
    averaged = _average(observations, traits, candidates, weights)
    own = weights @ np.array([left[each.name] for each in candidates])
    return replace(averaged, errors={name: float(np.abs(each).mean()) for name, each in left.items()}, left_out=own)


def _average(
    observations: Sequence[SlowdownObservation],
    traits: Traits,
    candidates: Sequence[InterferenceCandidate],
    weights: Floats,
) -> ChosenInterference:
    parts = [(float(weight), each.fit(observations, traits)) for weight, each in zip(weights, candidates, strict=True)]
    method = "blend: " + ", ".join(
        f"{each.name} {weight:.2f}"
        for weight, each in sorted(zip(weights, candidates, strict=True), key=lambda p: -p[0])
    )
    return ChosenInterference(method, Blend(parts))
