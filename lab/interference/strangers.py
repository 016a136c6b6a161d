"""Predicts slowdowns of models never measured beside others: a blend of candidates, by left-out families of models.

There are often few families, and picking one winner would follow chance: candidates are averaged, more sharply with
more families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from lab.interference import factors_by_traits, likeness, papers
from lab.interference.traits import Traits
from solvers.interference import choice
from solvers.interference.candidate import Floats, InterferenceCandidate
from solvers.interference.choice import SCALAR, ChosenInterference
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation

LEAST_FAMILIES = 3
MOST_LIKENED = 1200  # observations: a Gaussian process of more takes too long


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
        sample = choice.sample_mixes(self.observations)
        return ChosenInterference(SCALAR.name, SCALAR.fit(sample))

    @cached_property
    def measured(self) -> ChosenInterference:
        """Returns the choice for models that were measured beside others."""
        return choice.fit(self.observations, self.candidates)

    @cached_property
    def unmeasured(self) -> ChosenInterference:
        """Returns all candidates, weighted by how well they predict left-out families."""
        family = self.traits.family
        families = sorted({family(model) for model in self.models})
        if len(families) < LEAST_FAMILIES or not self.traits.numbers.keys() >= self.models:
            return self.average
        sample = choice.sample_mixes(self.observations)
        folds = choice.draw_folds(families, choice.FOLDS)
        out = [[any(family(model) in fold for model in each.run.models) for each in sample] for fold in folds]
        return _blend(self.observations, sample, self.candidates, out, len(families))

    def choose(self, run: SharedRun) -> ChosenInterference:
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
        chosen = self.choose(run)
        above = float(np.quantile(-chosen.left_out, quantile)) if len(chosen.left_out) else 0.0
        return max(1.0, float(np.exp(chosen.fitted.log_slowdowns([run])[0] + above)))

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        """Predicts the logarithms of many runs' slowdowns at once."""
        found = np.zeros(len(runs))
        choices = [self.choose(run) for run in runs]
        for chosen in {id(each): each for each in choices}.values():
            mine = [at for at, each in enumerate(choices) if each is chosen]
            found[mine] = chosen.fitted.log_slowdowns([runs[at] for at in mine])
        return found


def fit(observations: Sequence[SlowdownObservation], traits: Traits | None = None) -> InterferenceModel:
    """Fits the candidates that suit these observations of one GPU type, and chooses."""
    known = traits or Traits()
    suited = [each for each in list_candidates(observations, known) if each.suits(observations)]
    return InterferenceModel(observations, known, suited)


def list_candidates(observations: Sequence[SlowdownObservation], traits: Traits) -> list[InterferenceCandidate]:
    """Returns the product's candidates and, where these traits are known, those that need them; simple ones first."""
    *product, inss = choice.CANDIDATES
    found = list(product)
    has_traits = all(model in traits.numbers for each in observations for model in each.run.models)
    if has_traits:
        scalar, two_linear = factors_by_traits.fit_scalar, factors_by_traits.fit_two_linear_factors
        found += [
            InterferenceCandidate("scalar by traits", partial(scalar, traits=traits), takes_relative=True),
            InterferenceCandidate(
                "two linear factors by traits", partial(two_linear, traits=traits), takes_relative=True
            ),
        ]
    found.append(inss)
    if traits.compute_to_memory:
        found.append(InterferenceCandidate("OLTunes", partial(papers.fit_affinity, traits=traits)))
    if has_traits:
        found.append(InterferenceCandidate("Mudi", partial(papers.fit_mudi, traits=traits)))
    if has_traits and len(observations) <= MOST_LIKENED:
        found += [
            InterferenceCandidate("likeness", partial(likeness.fit, traits=traits)),
            InterferenceCandidate("likeness of pairs", partial(likeness.fit, traits=traits, pairs=True)),
        ]
    return found


def _blend(
    observations: Sequence[SlowdownObservation],
    sample: Sequence[SlowdownObservation],
    candidates: Sequence[InterferenceCandidate],
    folds: Sequence[Sequence[bool]],
    families: int,
) -> ChosenInterference:
    left = {each.name: choice.leave_out(sample, each, folds) for each in candidates}
    if not all(len(each) for each in left.values()):
        return ChosenInterference(SCALAR.name, SCALAR.fit(observations))
    # The likelihood of normal errors, were each family one observation: few families average, many choose. Families
    # differ in how far anything foresees them, so each has its own spread, lest the wildest decide alone.
    ends = np.cumsum([sum(fold) for fold in folds if any(fold) and not all(fold)])
    by_fold = [np.split(left[each.name] ** 2, ends[:-1]) for each in candidates]
    spread = np.array([[max(1e-12, float(squares.mean())) for squares in each] for each in by_fold])
    precision = np.exp(np.log(spread.min(0) / spread).mean(1) * families / 2)
    weights = precision / precision.sum()
    averaged = choice.average(observations, candidates, weights)
    own = weights @ np.array([left[each.name] for each in candidates])
    return replace(averaged, errors={name: float(np.abs(each).mean()) for name, each in left.items()}, left_out=own)
