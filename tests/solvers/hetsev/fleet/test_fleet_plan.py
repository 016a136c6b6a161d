"""HetSev plans a fleet: when, how many of what, and where; what runs stays where it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from solvers.hetsev.fleet import plan
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Limit, Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def at(problem: Problem, draft: PlannerDraft | None, seconds: float) -> Problem:
    """Returns the problem at another time, with what a plan made run."""
    running = draft.instances if draft else ()
    knowledge = {"hetsev": draft.knowledge} if draft else {}
    state = RunningState(NOON + timedelta(seconds=seconds), running, (), knowledge)
    return replace(problem, state=state)


def planned(problem: Problem) -> PlannerDraft:
    known = problem.state.knowledge.get("hetsev", {}) if problem.state else {}
    draft = plan(problem, known, PlannerBudget())
    verdict = judge(problem, Plan(draft.instances, unserved=draft.unserved), simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


def kinds(problem: Problem, draft: PlannerDraft) -> set[str]:
    return {problem.nodes[line.node].gpu_type for line in draft.instances}


def carried(draft: PlannerDraft, service: str) -> float:
    return sum(line.rate_per_second for line in draft.instances if line.service == service)


def test_it_serves_all_on_the_type_that_is_cheapest_for_the_load() -> None:
    cheap, dear = fleet(slow_price=0.2), fleet(slow_price=1.9)
    for problem, kind in ((cheap, "slow"), (dear, "fast")):
        draft = planned(problem)
        assert not draft.unserved
        assert carried(draft, "shop/a") == pytest.approx(400)
        assert kinds(problem, draft) == {kind}
        assert "integer program, ortools for 2 services" in draft.method


def test_instances_of_one_model_never_share_a_gpu_and_worst_fit_takes_empty_gpus_first() -> None:
    draft = planned(fleet(rate=300.0))
    places = [(line.place, line.service) for line in draft.instances]
    assert len(set(places)) == len(places)
    assert max(Counter(line.place for line in draft.instances).values()) == 2  # six on four GPUs


def test_a_risen_load_is_answered_after_it_has_lasted_and_nothing_moves() -> None:
    first = planned(at(fleet(200.0), None, 0))
    risen = fleet(900.0)
    waiting = planned(at(risen, first, 60))
    assert {line.id for line in waiting.instances} == {line.id for line in first.instances}
    assert waiting.unserved
    assert "above the threshold" in waiting.unserved[0].reason
    early = planned(at(risen, waiting, 85))
    assert len(early.instances) == len(waiting.instances)
    acted = planned(at(risen, early, 90))
    assert not acted.unserved
    assert {line.place for line in first.instances} < {line.place for line in acted.instances}
    kept = {line.id for line in acted.instances}
    assert {line.id for line in first.instances} <= kept


def test_a_load_that_falls_again_restarts_the_wait() -> None:
    first = planned(at(fleet(200.0), None, 0))
    high = planned(at(fleet(900.0), first, 60))
    low = planned(at(fleet(200.0), high, 80))
    again = planned(at(fleet(900.0), low, 91))
    assert len(again.instances) == len(first.instances)


def test_one_spare_instance_a_cool_down_stops_the_dearest_first() -> None:
    wide = planned(at(fleet(1500.0), None, 0))
    low = fleet(100.0)
    draft, counts = wide, []
    for seconds in (60, 300, 360, 420, 660):
        draft = planned(at(low, draft, seconds))
        counts.append(len(draft.instances))
    assert counts[0] == counts[1] == len(wide.instances)
    assert counts[2] == counts[3] == counts[0] - 2  # one of each service
    assert counts[4] == counts[3] - 2
    prices = [low.nodes[line.node].price_per_hour for line in wide.instances if line.service == "shop/a"]
    left = [low.nodes[line.node].price_per_hour for line in draft.instances if line.service == "shop/a"]
    assert sorted(prices)[: len(left)] == sorted(left)


def test_a_service_with_nothing_left_is_started_at_once() -> None:
    first = planned(at(fleet(200.0), None, 0))
    lost = replace(first, instances=tuple(line for line in first.instances if line.service != "shop/a"))
    found = planned(at(fleet(200.0), lost, 10))
    assert carried(found, "shop/a") == pytest.approx(200)


def test_min_instances_run_on_different_gpus() -> None:
    draft = planned(fleet(rate=50.0, min_instances=3))
    for service in ("shop/a", "shop/b"):
        assert len({line.place for line in draft.instances if line.service == service}) == 3


def test_a_dedicated_service_shares_no_gpu() -> None:
    problem = fleet(rate=300.0)
    alone = replace(problem.services["shop/a"], is_dedicated=True)
    problem = replace(problem, services={**problem.services, "shop/a": alone})
    draft = planned(problem)
    mine = {line.place for line in draft.instances if line.service == "shop/a"}
    assert mine
    assert not mine & {line.place for line in draft.instances if line.service == "shop/b"}


def test_what_no_gpu_has_room_for_is_unserved_with_its_reason() -> None:
    draft = planned(fleet(rate=1e6))
    assert {entry.service for entry in draft.unserved} == {"shop/a", "shop/b"}
    assert "already runs an instance of" in draft.unserved[0].reason or "SMs" in draft.unserved[0].reason


def test_a_limit_of_a_tenant_is_kept() -> None:
    problem = replace(fleet(rate=2000.0), limits={"shop": Limit(gpus=1.5)})
    draft = planned(problem)
    assert sum(line.sm_percent for line in draft.instances) <= 150
    assert any("limit of tenant shop" in entry.reason for entry in draft.unserved)


def test_what_runs_and_cannot_keep_its_slo_carries_nothing() -> None:
    problem = fleet(200.0)
    first = planned(at(problem, None, 0))
    slo = {name: replace(service, slo_ms=25.0) for name, service in problem.services.items()}
    found = planned(at(replace(problem, services=slo), first, 30))
    assert all(line.latency_ms <= 25 for line in found.instances)


def test_the_same_question_has_the_same_plan() -> None:
    problem = at(fleet(700.0), None, 0)
    assert planned(problem) == planned(problem)


def test_instances_of_other_planners_are_counted_as_they_are() -> None:
    problem = fleet(100.0)
    other = Instance("x", "shop/a", "fast-0", 0, "v", 8, 0.0, 40, 3.0, 1500.0, 100.0)
    draft = planned(replace(problem, state=RunningState(NOON, (other,))))
    assert [line.place for line in draft.instances if line.service == "shop/a"] == [("fast-0", 0)]
