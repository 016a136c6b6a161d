"""What explain says of a service whose profile is uncertain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.control.answer.explain.question import Explain
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.record.encoding import join_snapshot, snapshot_parts
from solvers.planning.plan import Plan
from solvers.planning.solve import SolveBudget, solve
from tests.app.control.answer.whatif.worlds import snapshot

QUICK = SolveBudget(seconds=None, work=0)


def uncertain(times: float, quantile: float = 0.9, **more: float) -> Snapshot:
    """The service `search`, whose latencies have a q90 of so many times the mean."""
    whole = snapshot(search=400.0)
    declared = []
    for item in whole.declared:
        spec = item.spec
        if item.kind == "Profile":
            spec = {
                **spec,
                **more,
                "latencyMs": {
                    batch: {share: _spread(value, times) for share, value in curve.items()}
                    for batch, curve in spec["latencyMs"].items()
                },
            }
        if item.kind == "Policy":
            spec = {**spec, "profileQuantile": quantile}
        declared.append(replace(item, spec=spec))
    return replace(whole, declared=tuple(declared))


def _spread(value: float, times: float) -> dict[str, Any]:
    return {"mean": value, "q90": value * times, "n": 16, "at": "2026-11-23T10:00:00Z", "source": "measured"}


def explained(of: Snapshot) -> tuple[Plan, dict[str, Any]]:
    plan = solve(formulate(of).problem, QUICK)
    return plan, Explain(of, plan, "service", "shop/search").answered()


def test_the_plan_counts_on_the_quantile_and_explain_states_the_spread() -> None:
    plan, answer = explained(uncertain(1.2))
    spreads = answer["uncertainty"]["spreads"]
    for spread in spreads:
        assert spread["plannedMs"] == pytest.approx(1.2 * spread["meanMs"])
    planned = {(spread["batch"], spread["smPercent"]): spread["plannedMs"] for spread in spreads}
    for line in plan.instances:
        assert line.exec_ms == pytest.approx(planned[line.batch, line.sm_percent])
    assert any("20 % at q90 from 16 measurements of 2026-11-23" in sentence for sentence in answer["sentences"])
    _, of_draft = explained(uncertain(1.2, leftOutError=0.234))
    assert any(" is a draft, error 23 % (goal 10 %): batch " in sentence for sentence in of_draft["sentences"])
    _, of_wide_draft = explained(uncertain(2.134, leftOutError=0.6))
    assert any("113 % at q90" in sentence for sentence in of_wide_draft["sentences"]), of_wide_draft["sentences"]


def test_what_could_be_saved_is_a_part_of_the_cost_and_names_the_service_as_worth_profiling() -> None:
    _, answer = explained(uncertain(1.2))
    saved = answer["uncertainty"]["couldSavePerHour"]
    assert 0 < saved < answer["costPerHour"]
    assert any(sentence.startswith("worth profiling: 16 more") for sentence in answer["sentences"])


def test_a_plan_at_the_mean_has_nothing_to_save() -> None:
    plan, answer = explained(uncertain(1.2, quantile=0.5))
    assert answer["uncertainty"]["couldSavePerHour"] == pytest.approx(0.0)
    assert not answer["uncertainty"]["worthProfiling"]
    assert plan.instances == solve(formulate(snapshot(search=400.0)).problem, QUICK).instances


def test_a_certain_profile_has_no_spread() -> None:
    _, answer = explained(snapshot(search=400.0))
    assert answer["uncertainty"] == {"couldSavePerHour": 0.0, "worthProfiling": False, "spreads": []}


def test_a_wider_spread_costs_more() -> None:
    saved = [explained(uncertain(times))[1]["uncertainty"]["couldSavePerHour"] for times in (1.05, 1.2, 1.5)]
    assert saved == sorted(saved)


def test_services_worth_profiling_are_named_the_dearest_first() -> None:
    of = uncertain(1.2)
    plan = solve(formulate(of).problem, QUICK)
    answer = Explain(of, plan, "profiling", "").answered()
    (worth,) = answer["worthProfiling"]
    assert worth["service"] == "shop/search"
    assert 0 < worth["couldSavePerHour"] < worth["costPerHour"]
    assert answer["sentences"][0].startswith("worth profiling: shop/search: 16 more measurements could save up to")


def test_the_record_of_a_plan_keeps_the_spread() -> None:
    of = uncertain(1.2)
    again = join_snapshot(snapshot_parts(of))
    assert [item.spec for item in again.declared] == [item.spec for item in of.declared]
    assert formulate(again).problem.profiles == formulate(of).problem.profiles
