"""gpulet, GSLICE and iGniter share GPUs by their own rules, and their plans are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from lab.baselines.sharing import plan_gpulet, plan_gslice, plan_gslice_largest_first, plan_igniter
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet

PLANS = [plan_gpulet, plan_gslice, plan_gslice_largest_first, plan_igniter]
Plans = Callable[..., PlannerDraft]


def planned(plan: Plans, problem: Problem, before: PlannerDraft | None = None) -> PlannerDraft:
    """Returns the plan with what an earlier one made running, once the judge has accepted it."""
    problem = replace(problem, state=RunningState(None, before.instances if before else ()))
    draft = plan(problem, before.knowledge if before else {}, PlannerBudget())
    verdict = judge(problem, Plan(draft.instances, (), draft.unserved), simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_serves_what_it_can_and_stays_while_rates_stay(plan: Plans) -> None:
    first = planned(plan, fleet(200.0))
    assert not first.unserved
    assert {line.service for line in first.instances} == {"shop/a", "shop/b"}
    near = planned(plan, fleet(190.0), first)
    assert {line.id for line in near.instances} == {line.id for line in first.instances}
    assert planned(plan, fleet(200.0)) == first
    risen = planned(plan, fleet(900.0), near)
    assert sum(line.rate_per_second for line in risen.instances) > sum(line.rate_per_second for line in near.instances)
    short = planned(plan, fleet(1e4))
    assert {entry.reason for entry in short.unserved} == {"no GPU has SMs, memory and watts left for another instance"}


def test_gpulet_divides_a_gpu_in_two_pieces_at_most() -> None:
    draft = planned(plan_gpulet, fleet(1500.0))
    assert max(Counter(line.place for line in draft.instances).values()) == 2
    assert {line.sm_percent for line in draft.instances} <= {20, 40, 50, 60, 80, 100}
    assert all(line.exec_ms <= 100 * 1.2 for line in draft.instances)  # half of the SLO, and neighbours


def test_gslice_takes_the_smallest_share_that_is_enough_alone() -> None:
    problem = fleet(100.0)
    draft = planned(plan_gslice, problem)
    assert len({line.place for line in draft.instances}) == 1  # first fit
    assert [line.sm_percent for line in draft.instances] == [20, 20]
    more = planned(plan_gslice, fleet(180.0))
    assert all(line.sm_percent > 20 for line in more.instances)


def test_igniter_raises_shares_for_interference_and_opens_no_gpu_without_need() -> None:
    alone = planned(plan_igniter, replace(fleet(100.0), services={"shop/a": fleet(100.0).services["shop/a"]}))
    together = planned(plan_igniter, fleet(100.0))
    assert len({line.place for line in together.instances}) == 1
    of_a = next(line for line in together.instances if line.service == "shop/a")
    assert of_a.sm_percent >= alone.instances[0].sm_percent
    assert all(line.exec_ms <= 100 for line in together.instances)


def test_igniter_gives_a_dedicated_service_a_gpu_of_its_own() -> None:
    draft = planned(plan_igniter, fleet(100.0, is_dedicated=True))
    assert len({line.place for line in draft.instances}) == 2
