"""A plan judged by what a change touches gets the same verdict as the whole plan judged from scratch."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solvers.planning.judge import JudgedPlan, PlanEdit, judge
from solvers.planning.plan import Plan, Unplaced, Unserved
from solvers.planning.problem import Instance, Limit, PlacedJob, Problem, RunningState
from tests.solvers.planning import small_world
from tests.support.soak import scaled

PLACES = [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1), ("n3", 0), ("n4", 0), ("n4", 1), ("n9", 0)]
instances = st.builds(
    lambda service, place, **fields: small_world.instance(service, *place, **fields),
    st.sampled_from(["shop/search", "shop/rank", "lab/alone", "shop/none"]),
    st.sampled_from(PLACES),
    variant=st.sampled_from(["v", "w"]),
    batch=st.sampled_from([1, 2, 4]),
    batch_timeout_ms=st.sampled_from([0.0, 3.0]),
    sm_percent=st.sampled_from([10, 20, 40, 60]),
    memory_gib=st.sampled_from([1.0, 2.0, 9.0]),
    clock_mhz=st.sampled_from([600, 1000, 1200]),
    rate_per_second=st.sampled_from([0.0, 10.0, 20.0, 50.0]),
)
placed_jobs = st.builds(
    lambda job, place, sm_percent: PlacedJob(job, place[0], place[1], sm_percent, 4.0),
    st.sampled_from(["lab/tune", "lab/slow", "lab/none"]),
    st.sampled_from(PLACES),
    st.sampled_from([20, 40]),
)
left = st.dictionaries(
    st.sampled_from(["shop/rank", "shop/search", "shop/none"]), st.sampled_from([0.0, 10.0]), max_size=2
)
out = st.sets(st.sampled_from(["lab/late", "lab/tune", "lab/none"]), max_size=2)
plans = st.builds(
    lambda instances, jobs, left, out: Plan(
        tuple(instances),
        tuple(jobs),
        tuple(Unserved(name, rate) for name, rate in left.items()),
        tuple(Unplaced(name) for name in sorted(out)),
    ),
    st.lists(instances, max_size=6),
    st.lists(placed_jobs, max_size=3),
    left,
    out,
)
policies: Any = st.fixed_dictionaries(
    {
        "pricing": st.sampled_from(["gpu", "share"]),
        "energy_price_per_kwh": st.sampled_from([0.0, 0.5]),
        "power_budget_w": st.sampled_from([None, 300.0]),
        "same_model_per_gpu": st.sampled_from([1, 2]),
    }
)


def change(before: Plan, after: Plan) -> PlanEdit:
    """Returns the edit from a plan to another; what stays is not part of it."""
    stop, start = _apart(before.instances, after.instances)
    stop_jobs, start_jobs = _apart(before.jobs, after.jobs)
    unserved: dict[str, Any] = dict.fromkeys(entry.service for entry in before.unserved)
    unplaced: dict[str, Any] = dict.fromkeys(entry.job for entry in before.unplaced)
    unserved |= {entry.service: entry for entry in after.unserved}
    unplaced |= {entry.job: entry for entry in after.unplaced}
    return PlanEdit(stop, start, stop_jobs, start_jobs, unserved, unplaced)


def _apart(before: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    gone, new = list(before), []
    for instance in after:
        if instance in gone:
            gone.remove(instance)
        else:
            new.append(instance)
    return tuple(gone), tuple(new)


def with_state(policy: dict[str, Any], running: tuple[Instance, ...], jobs: tuple[PlacedJob, ...]) -> Problem:
    """Returns the small world with these instances running, without those on nodes or services that do not exist."""
    problem = small_world.problem(**policy)
    state = RunningState(
        now=small_world.NOON.replace(hour=11),
        running=tuple(i for i in running if i.service in problem.services and i.node in problem.nodes),
        jobs=tuple(job for job in jobs if job.job in problem.jobs and job.node in problem.nodes),
    )
    limits = {"shop": Limit(gpus=0.7, price_per_hour=1.0), "lab": Limit(gpus=1)}
    return replace(problem, state=state, limits=limits)


def verdict_of(problem: Problem, plan: Plan) -> Any:
    verdict = judge(problem, plan, simulate=False)
    return (verdict.violations, verdict.cost, verdict.changes)


@settings(max_examples=scaled(150, 25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policies, plans, plans, plans, st.sampled_from([40.0, 30.0]))
def test_a_change_is_judged_as_the_whole_plan_would_be(
    policy: dict[str, Any], running: Plan, before: Plan, after: Plan, rate: float
) -> None:
    problem = with_state(policy, running.instances, running.jobs)
    new = problem.change_rates({"shop/search": rate, "shop/rank": 20.0})
    judged_plan = JudgedPlan(problem, before)
    first = judged_plan.verdict()
    assert (first.violations, first.cost, first.changes) == verdict_of(problem, before)
    second = judged_plan.apply(change(before, after), new)
    assert (second.violations, second.cost, second.changes) == verdict_of(new, after)
    back = judged_plan.apply(change(after, before), problem)
    assert (back.violations, back.cost, back.changes) == (first.violations, first.cost, first.changes)


@settings(max_examples=scaled(50, 10), deadline=None)
@given(plans, plans)
def test_what_is_settled_runs_and_a_change_after_it_counts_from_there(before: Plan, after: Plan) -> None:
    places = {(name, index) for name, node in small_world.problem().nodes.items() for index in node.gpus}
    before = replace(before, instances=tuple(i for i in before.instances if i.place in places))
    before = replace(before, instances=tuple(i for i in before.instances if i.service != "shop/none"))
    problem = with_state({}, (), ())
    judged_plan = JudgedPlan(problem, before)
    judged_plan.settle()
    verdict = judged_plan.apply(change(before, after))
    assert problem.state
    then = replace(problem, state=replace(problem.state, running=before.instances))
    assert (verdict.violations, verdict.cost, verdict.changes) == verdict_of(then, after)


@settings(max_examples=scaled(50, 10), deadline=None)
@given(st.lists(plans, min_size=3, max_size=4))
def test_a_plan_that_is_settled_again_and_again_is_judged_as_one_that_starts_afresh(row: list[Plan]) -> None:
    places = {(name, index) for name, node in small_world.problem().nodes.items() for index in node.gpus}
    row = [replace(plan, instances=tuple(i for i in plan.instances if i.place in places)) for plan in row]
    row = [replace(plan, instances=tuple(i for i in plan.instances if i.service != "shop/none")) for plan in row]
    problem = with_state({}, (), ())
    assert problem.state
    judged_plan = JudgedPlan(problem, row[0])
    for before, after in pairwise(row):
        judged_plan.settle()
        still = judged_plan.verdict()
        assert (still.changes.keep, still.cost.churn) == (len(before.instances), 0.0)
        verdict = judged_plan.apply(change(before, after))
        then = replace(problem, state=replace(problem.state, running=before.instances))
        assert (verdict.violations, verdict.cost, verdict.changes) == verdict_of(then, after)


def test_another_problem_than_one_of_other_rates_is_refused() -> None:
    judged_plan = JudgedPlan(small_world.problem(), small_world.plan())
    with pytest.raises(ValueError, match="other rates only"):
        judged_plan.apply(PlanEdit(), small_world.problem(utilization=0.7))


def test_whoever_judges_without_simulation_is_asked_of_what_a_change_touches() -> None:
    asked: list[str] = []

    def keeps(problem: Problem, lines: Any) -> list[bool]:
        asked.extend(line.instance.service for line in lines)
        return [line.instance.rate_per_second < 25 for line in lines]

    plan = small_world.plan()
    judged_plan = JudgedPlan(small_world.problem(), plan, keeps)
    assert sorted(asked) == ["lab/alone", "shop/rank", "shop/search", "shop/search"]
    asked.clear()
    rank = plan.instances[2]
    faster = replace(rank, rate_per_second=30.0)
    verdict = judged_plan.apply(PlanEdit((rank,), (faster,), unserved={"shop/rank": None}))
    assert asked == ["shop/rank"]
    assert [(v.rule, v.where) for v in verdict.violations] == [("slo_holds", "shop/rank on n1/1")]
    assert judged_plan.apply(PlanEdit((faster,), (rank,), unserved={"shop/rank": plan.unserved[0]})).is_right
