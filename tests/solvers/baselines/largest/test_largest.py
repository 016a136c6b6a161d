"""Everything on the largest type: no instance elsewhere, shared GPUs, and reasons for what finds no room."""

from __future__ import annotations

from dataclasses import replace

from solvers.baselines.largest import plan
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet


def planned(problem: Problem, before: PlannerDraft | None = None) -> PlannerDraft:
    """Returns the plan with what an earlier one made running, once the judge has accepted it."""
    problem = replace(problem, state=RunningState(None, before.instances if before else ()))
    draft = plan(problem, {}, PlannerBudget())
    verdict = judge(problem, Plan(draft.instances, unserved=draft.unserved), simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


def test_services_share_gpus_of_the_largest_type_and_use_no_other() -> None:
    problem = fleet(150.0)
    draft = planned(problem)
    assert not draft.unserved
    assert {problem.nodes[line.node].gpu_type for line in draft.instances} == {"fast"}
    assert len({line.place for line in draft.instances}) < len(draft.instances)
    again = planned(fleet(149.0), draft)
    assert {(line.id, line.place) for line in again.instances} == {(line.id, line.place) for line in draft.instances}


def test_a_service_that_may_not_run_there_runs_on_the_largest_of_its_own() -> None:
    problem = fleet(100.0)
    services = {**problem.services, "shop/b": replace(problem.services["shop/b"], gpu_types=("slow",))}
    draft = planned(replace(problem, services=services))
    kinds = {line.service: problem.nodes[line.node].gpu_type for line in draft.instances}
    assert kinds == {"shop/a": "fast", "shop/b": "slow"}


def test_what_finds_no_room_on_the_largest_type_waits_though_others_are_idle() -> None:
    problem = fleet(1e4)
    draft = planned(problem)
    assert {problem.nodes[line.node].gpu_type for line in draft.instances} == {"fast"}
    assert {rest.service for rest in draft.unserved} == {"shop/a", "shop/b"}
    assert all("fast" in rest.reason for rest in draft.unserved)


def test_a_service_whose_slo_no_type_keeps_says_so() -> None:
    draft = planned(fleet(10.0, slo_ms=1.0))
    assert not draft.instances
    assert {rest.reason for rest in draft.unserved} == {"no GPU type of the fleet keeps its SLO in any profiled shape"}
