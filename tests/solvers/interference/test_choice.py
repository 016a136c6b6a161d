"""Models of interference are chosen by what they do not see."""

from __future__ import annotations

import pytest

from solvers.interference.choice import fit
from solvers.interference.observation import SharedRun, SlowdownObservation, WrongObservation
from tests.solvers.interference.families import declared_pairs, saturating_mixes


@pytest.mark.slow
def test_exponents_by_sm_percent_beat_the_scalar_where_slowdowns_saturate() -> None:
    chosen = fit(saturating_mixes())
    assert chosen.method in ("one factor", "two factors")
    assert chosen.error is not None
    assert chosen.error < 0.5 * chosen.errors["scalar"]


@pytest.mark.slow
def test_the_simplest_is_chosen_where_none_is_surely_better() -> None:
    chosen = fit(declared_pairs(noise=0.02))
    assert chosen.method == "scalar"
    assert chosen.error is not None
    assert chosen.error == pytest.approx(chosen.errors["scalar"])
    assert chosen.error < 1.2 * min(chosen.errors.values())


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
    chosen = fit(relative)
    assert chosen.error is not None
    assert chosen.error < 0.05


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(WrongObservation, match="no observation"):
        fit([])
    with pytest.raises(WrongObservation, match=r"smPercent 0 of a's run is outside"):
        SharedRun("a", 0, ())
    with pytest.raises(WrongObservation, match="slowdown -1 of a"):
        SlowdownObservation(SharedRun("a", 10, ()), -1.0)
