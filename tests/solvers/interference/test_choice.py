"""Models of interference are chosen by what they do not see, and agree with families whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers.interference.choice import CANDIDATES, fit
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation, Traits, WrongObservation
from tests.solvers.interference.families import alike_by_traits, declared_pairs, declared_slowdown, saturating_mixes


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
def test_exponents_by_sm_percent_beat_the_scalar_where_slowdowns_saturate() -> None:
    chosen = fit(saturating_mixes()).measured
    assert chosen.method in ("one factor", "two factors")
    assert chosen.error is not None
    assert chosen.error < 0.5 * chosen.errors["scalar"]


@pytest.mark.slow
def test_the_simplest_is_chosen_where_none_is_surely_better() -> None:
    chosen = fit(declared_pairs(noise=0.02)).measured
    assert chosen.method == "scalar"
    assert chosen.error is not None
    assert chosen.error == pytest.approx(chosen.errors["scalar"])
    assert chosen.error < 1.2 * min(chosen.errors.values())


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
    assert model.choice(run) is model.average
    slowdowns = [model.slowdown(name, 50, (Neighbour("c", 50),)) for name in "abcd"]
    assert min(slowdowns) < model.slowdown("stranger", 50, (Neighbour("c", 50),)) < max(slowdowns)


@pytest.mark.slow
def test_quantiles_cover_what_was_left_out() -> None:
    pairs = declared_pairs(noise=0.05)
    model = fit(pairs)
    below = [each.slowdown <= model.quantile(each.run.model, 50, each.run.neighbours, 0.9) for each in pairs]
    assert 0.8 <= np.mean(below) <= 1
    assert model.quantile("a", 50, (Neighbour("c", 50),), 0.5) < model.quantile("a", 50, (Neighbour("c", 50),), 0.95)


@pytest.mark.slow
def test_slowdowns_against_another_sm_percent_are_fitted_without_any_run_alone() -> None:
    mixes = {(each.run.mix, each.run.model, each.run.sm_percent): each.slowdown for each in saturating_mixes()}
    relative = [
        SlowdownObservation(
            SharedRun(each.run.model, each.run.sm_percent, each.run.neighbours, against=100),
            3.0 * each.slowdown / mixes[each.run.mix, each.run.model, 100],
        )
        for each in saturating_mixes()
        if each.run.sm_percent != 100
    ]
    chosen = fit(relative).measured
    assert chosen.error is not None
    assert chosen.error < 0.05


def test_every_candidate_fits_pairs_with_traits_and_never_predicts_a_speedup() -> None:
    pairs, traits = alike_by_traits(4)
    pairs += [replace(each, run=replace(each.run, sm_percent=50)) for each in pairs]
    full = Traits(traits.numbers, traits.kin, {model: values[0] for model, values in traits.numbers.items()})
    for candidate in CANDIDATES:
        assert candidate.suits(pairs, full), candidate.name
        found = candidate.fit(pairs, full).log_slowdowns([each.run for each in pairs])
        assert np.isfinite(found).all(), candidate.name
        assert (found >= 0).all(), candidate.name


@pytest.mark.slow
def test_the_same_observations_give_the_same_model() -> None:
    runs = [each.run for each in declared_pairs()]
    first, second = (fit(declared_pairs(noise=0.02)).log_slowdowns(runs) for _ in range(2))
    assert (first == second).all()


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(WrongObservation, match="no observation"):
        fit([])
    with pytest.raises(WrongObservation, match=r"smPercent 0 of a's run is outside"):
        SharedRun("a", 0, ())
    with pytest.raises(WrongObservation, match="slowdown -1 of a"):
        SlowdownObservation(SharedRun("a", 10, ()), -1.0)
