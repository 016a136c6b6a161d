"""Models of interference agree with families whose truth is known, also for models never measured beside others."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lab.interference.strangers import fit, list_candidates
from lab.interference.traits import Traits
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation
from tests.solvers.interference.families import declared_pairs, declared_slowdown


def alike_by_traits(families: int = 7) -> tuple[list[SlowdownObservation], Traits]:
    """Pairs whose logarithms of slowdowns follow from one trait of each model; two models a family."""
    trait = {f"m{at}": at / families for at in range(2 * families)}
    kin = {f"m{at}": f"f{at // 2}" for at in range(2 * families)}
    pairs = [
        SlowdownObservation(
            SharedRun(model, 100, (Neighbour(other),)), float(np.exp(0.2 * trait[model] + 0.6 * trait[other]))
        )
        for model, other in product(trait, trait)
    ]
    return pairs, Traits({model: (value,) for model, value in trait.items()}, kin)


@pytest.mark.slow
def test_the_rule_of_right_plans_is_found_from_pairs_and_holds_for_triples() -> None:
    model = fit(declared_pairs())
    triple = (Neighbour("b", 20), Neighbour("c", 50))
    assert model.slowdown("d", 50, triple) == pytest.approx(declared_slowdown("d", triple), rel=0.03)


def test_alone_nothing_is_slower() -> None:
    model = fit(declared_pairs())
    assert model.slowdown("a", 50, ()) == 1
    assert model.quantile("a", 50, (), 0.9) == 1


@pytest.mark.slow
def test_a_family_never_measured_beside_others_is_predicted_by_its_traits() -> None:
    pairs, traits = alike_by_traits()
    hidden = {"m6", "m7"}
    known = [each for each in pairs if not each.run.models & hidden]
    judged = [each for each in pairs if each.run.models & hidden]
    model = fit(known, traits)
    error = np.abs(model.log_slowdowns([each.run for each in judged]) - np.log([each.slowdown for each in judged]))
    average = np.abs(model.average.fitted.log_slowdowns([e.run for e in judged]) - np.log([e.slowdown for e in judged]))
    assert error.mean() < 0.25 * average.mean()


@pytest.mark.slow
def test_a_model_of_which_nothing_is_known_is_the_average_model() -> None:
    model = fit(declared_pairs())
    run = SharedRun("stranger", 50, (Neighbour("c", 50),))
    assert model.choose(run) is model.average
    slowdowns = [model.slowdown(name, 50, (Neighbour("c", 50),)) for name in "abcd"]
    assert min(slowdowns) < model.slowdown("stranger", 50, (Neighbour("c", 50),)) < max(slowdowns)


@pytest.mark.slow
def test_quantiles_cover_what_was_left_out() -> None:
    pairs = declared_pairs(noise=0.05)
    model = fit(pairs)
    below = [each.slowdown <= model.quantile(each.run.model, 50, each.run.neighbours, 0.9) for each in pairs]
    assert 0.8 <= np.mean(below) <= 1
    assert model.quantile("a", 50, (Neighbour("c", 50),), 0.5) < model.quantile("a", 50, (Neighbour("c", 50),), 0.95)


def test_every_candidate_fits_pairs_with_traits_and_never_predicts_a_speedup() -> None:
    pairs, traits = alike_by_traits(4)
    pairs += [replace(each, run=replace(each.run, sm_percent=50)) for each in pairs]
    full = Traits(traits.numbers, traits.kin, {model: values[0] for model, values in traits.numbers.items()})
    for candidate in list_candidates(pairs, full):
        assert candidate.suits(pairs), candidate.name
        found = candidate.fit(pairs).log_slowdowns([each.run for each in pairs])
        assert np.isfinite(found).all(), candidate.name
        assert (found >= 0).all(), candidate.name


@pytest.mark.slow
def test_the_same_observations_give_the_same_model() -> None:
    runs = [each.run for each in declared_pairs()]
    first, second = (fit(declared_pairs(noise=0.02)).log_slowdowns(runs) for _ in range(2))
    assert (first == second).all()
