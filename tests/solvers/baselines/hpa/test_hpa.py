"""Kubernetes' autoscaler: whole GPUs, numbers by usage, and what finds no GPU waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from solvers.baselines.hpa import plan_cheapest, plan_random
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def planned(problem: Problem, before: PlannerDraft | None = None, seconds: float = 0.0, seed: int = 0) -> PlannerDraft:
    """Returns the plan at a moment, with what an earlier plan made running."""
    running = before.instances if before else ()
    problem = replace(problem, state=RunningState(NOON + timedelta(seconds=seconds), running))
    draft = plan_random(problem, before.knowledge if before else {}, PlannerBudget(seed=seed))
    verdict = judge(problem, Plan(draft.instances, unserved=draft.unserved), simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


def count(draft: PlannerDraft, service: str = "shop/a") -> int:
    return sum(line.service == service for line in draft.instances)


def test_each_instance_has_a_gpu_to_itself_and_chance_picks_its_type() -> None:
    problem = fleet(rate=300.0)
    drafts = [planned(problem, seed=seed) for seed in range(8)]
    for draft in drafts:
        assert len({line.place for line in draft.instances}) == len(draft.instances)
        assert {line.sm_percent for line in draft.instances} == {100}
    assert len({problem.nodes[line.node].gpu_type for draft in drafts for line in draft.instances}) == 2


def test_the_cheapest_type_is_the_one_of_the_lowest_price_for_its_rate() -> None:
    for price, kind in ((0.2, "slow"), (1.9, "fast")):
        problem = fleet(rate=50.0, slow_price=price)
        draft = plan_cheapest(problem, {}, PlannerBudget())
        assert {problem.nodes[line.node].gpu_type for line in draft.instances} == {kind}


def test_what_finds_no_free_gpu_is_unserved() -> None:
    draft = planned(fleet(rate=5000.0))
    assert len(draft.instances) == 8
    assert {entry.reason for entry in draft.unserved} == {"each instance needs a GPU of its own, and all are in use"}


def test_a_rise_adds_four_at_most_and_a_change_of_a_tenth_changes_nothing() -> None:
    first = planned(fleet(rate=100.0))
    assert count(first) == 1
    risen = planned(fleet(rate=4000.0), first, 30)
    assert 1 < count(risen) <= 5
    carried = sum(line.rate_per_second for line in risen.instances if line.service == "shop/a")
    near = planned(fleet(rate=0.95 * carried), risen, 60)
    assert count(near) >= count(risen)


def test_a_fall_counts_after_five_minutes() -> None:
    wide = planned(fleet(rate=1200.0))
    low = fleet(rate=100.0)
    draft = planned(fleet(rate=1200.0), wide, 30)
    counts = []
    for seconds in (60, 300, 360, 420):
        draft = planned(low, draft, seconds)
        counts.append(count(draft))
    assert counts[0] == counts[1] == count(wide) > counts[2] == counts[3]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_question_has_the_same_plan(seed: int) -> None:
    assert planned(fleet(rate=700.0), seed=seed) == planned(fleet(rate=700.0), seed=seed)
