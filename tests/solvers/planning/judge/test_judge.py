"""A valid plan with a single rule broken: the judge names this rule and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unplaced, Unserved
from solvers.planning.problem import Limit, PlacedJob, Problem, RunningState
from tests.solvers.planning import small_world
from tests.solvers.planning.small_world import NOON, instance, plan, problem

SEARCH_0, SEARCH_1, RANK, ALONE = range(4)
TUNE, SLOW = range(2)


def broken(problem: Problem, plan: Plan) -> set[str]:
    return {violation.rule for violation in judge(problem, plan).violations}


def with_instance(at: int, **fields: Any) -> Plan:
    instances = list(plan().instances)
    instances[at] = replace(instances[at], **fields)
    return replace(plan(), instances=tuple(instances))


def with_job(at: int, **fields: Any) -> Plan:
    jobs = list(plan().jobs)
    jobs[at] = replace(jobs[at], **fields)
    return replace(plan(), jobs=tuple(jobs))


def beside(*more: Any, **fields: Any) -> Plan:
    """Returns the valid plan with more instances, and other fields."""
    return replace(plan(), instances=(*plan().instances, *more), **fields)


def of(name: str, **fields: Any) -> Problem:
    """Returns the problem with a service changed."""
    whole = problem()
    return replace(whole, services={**whole.services, name: replace(whole.services[name], **fields)})


def job_of(name: str, **fields: Any) -> Problem:
    whole = problem()
    return replace(whole, jobs={**whole.jobs, name: replace(whole.jobs[name], **fields)})


def node_of(name: str, **fields: Any) -> Problem:
    whole = problem()
    return replace(whole, nodes={**whole.nodes, name: replace(whole.nodes[name], **fields)})


def limited(**fields: Any) -> Problem:
    return replace(problem(), limits={"shop": Limit(**fields)})


def running(job: str, node: str, gpu: int) -> Problem:
    state = RunningState(now=NOON.replace(hour=11), jobs=(PlacedJob(job, node, gpu, 20, 4),))
    return replace(job_of(job, is_preemptible=False), state=state)


def without(job: str) -> Plan:
    return replace(plan(), jobs=tuple(placed for placed in plan().jobs if placed.job != job))


def with_type(**fields: Any) -> Problem:
    whole = problem()
    return replace(whole, gpu_types={**whole.gpu_types, "big": replace(small_world.BIG, **fields)})


def test_a_right_plan_breaks_no_rule() -> None:
    verdict = judge(problem(), plan())
    assert verdict.violations == ()
    assert verdict.misstated == ()
    assert verdict.is_right


LESS = Unserved("lab/alone", -0.1)
LEFT = (*plan().unplaced, Unplaced("lab/tune"))
BREAKS: dict[str, list[Callable[[], tuple[Problem, Plan]]]] = {
    "service_exists": [lambda: (problem(), beside(instance("shop/none", "n2", 1)))],
    "gpu_exists": [
        lambda: (problem(), with_instance(ALONE, gpu=2)),
        lambda: (problem(), with_instance(ALONE, gpu=-1)),
        lambda: (problem(), with_instance(ALONE, gpu=0.5)),
        lambda: (problem(), with_instance(ALONE, node="n9")),
    ],
    "variant_admitted": [lambda: (problem(), with_instance(SEARCH_0, variant="w"))],
    "gpu_type_admitted": [
        lambda: (problem(), with_instance(SEARCH_0, node="n4", gpu=0, clock_mhz=1000, rate_per_second=20)),
    ],
    "template_offered": [
        lambda: (node_of("n1", templates=frozenset({"serve"})), plan()),
    ],
    "shape_profiled": [
        lambda: (problem(), with_instance(RANK, node="n4", gpu=0, clock_mhz=1000)),
        lambda: (problem(), with_instance(RANK, batch=2)),
    ],
    "sm_profiled": [
        lambda: (problem(), with_instance(RANK, sm_percent=19)),
        lambda: (problem(), with_instance(ALONE, sm_percent=81)),
        lambda: (problem(), with_instance(ALONE, sm_percent=40.5)),
    ],
    "memory_covers": [lambda: (problem(), with_instance(RANK, memory_gib=1.99))],
    "clock_offered": [lambda: (problem(), with_instance(ALONE, clock_mhz=1199))],
    "timeout_counts": [lambda: (problem(), with_instance(ALONE, batch_timeout_ms=-1.0))],
    "rate_positive": [
        lambda: (problem(), beside(instance("lab/alone", "n2", 1, rate_per_second=0))),
    ],
    "utilization_holds": [
        # 20 x 16 ms / 4 = 0.08
        lambda: (problem(utilization=0.0799), with_instance(ALONE, sm_percent=40)),
    ],
    "slo_holds": [
        lambda: (of("lab/alone", slo_ms=16.7), plan()),  # exec 16, with the margin 16.8
        lambda: (of("lab/alone", slo_ms=18), plan()),
        lambda: (problem(), with_instance(ALONE, batch_timeout_ms=500.0)),
    ],
    "rates_add_up": [
        lambda: (of("lab/alone", rate_per_second=20.001), plan()),
        lambda: (of("lab/alone", rate_per_second=19.999), plan()),
        lambda: (problem(), replace(plan(), unserved=())),
    ],
    "unserved_told_once": [
        lambda: (problem(), replace(plan(), unserved=(Unserved("shop/rank", 4.0), Unserved("shop/rank", 6.0)))),
        lambda: (of("lab/alone", rate_per_second=19.9), replace(plan(), unserved=(*plan().unserved, LESS))),
    ],
    "unserved_exists": [
        lambda: (problem(), replace(plan(), unserved=(*plan().unserved, Unserved("shop/none", 1)))),
    ],
    "unplaced_exists": [
        lambda: (problem(), replace(plan(), unplaced=(*plan().unplaced, Unplaced("lab/none")))),
    ],
    "min_instances_run": [lambda: (of("lab/alone", min_instances=2), plan())],
    "largest_carry": [
        lambda: (of("shop/search", rate_per_second=40), rates(30.1, 9.9)),
    ],
    "largest_apart": [
        lambda: (replace(problem(same_model_per_gpu=2), jobs={}), together()),
    ],
    "sm_fits": [lambda: (problem(), with_instance(SEARCH_1, sm_percent=61))],
    "memory_fits": [lambda: (problem(), with_instance(SEARCH_1, memory_gib=14.1))],
    "same_model_fits": [lambda: (of("lab/alone", rate_per_second=40), beside(instance("lab/alone", "n2", 0)))],
    "clients_fit": [lambda: (problem(clients_per_gpu=1), replace(plan(), jobs=plan().jobs[1:], unplaced=LEFT))],
    "jobs_fit": [lambda: (problem(jobs_per_gpu=0), without("lab/slow"))],
    "dedicated_alone": [
        lambda: (of("shop/rank", is_dedicated=True), plan()),
        lambda: (problem(), with_job(SLOW, node="n2", gpu=0)),
    ],
    "tenants_apart": [lambda: (problem(share_across_tenants=False), plan())],
    "clocks_agree": [lambda: (problem(), with_instance(RANK, clock_mhz=600))],
    # 40 idle, 2 x 50 busy
    "watts_fit": [
        lambda: (with_type(max_w=139), with_job(TUNE, node="n3", gpu=1, sm_percent=20)),
        lambda: (node_of("n1", caps_w=(300, 139)), with_job(TUNE, node="n3", gpu=1, sm_percent=20)),
    ],
    "cpu_fits": [lambda: (node_of("n1", cpu_cores=6.9), plan())],
    "host_memory_fits": [lambda: (node_of("n1", host_memory_gib=13.9), plan())],
    "gpus_within_limit": [lambda: (limited(gpus=1.19), plan())],
    "price_within_limit": [lambda: (limited(price_per_hour=2.39), plan())],
    "power_budget_holds": [lambda: (problem(power_budget_w=220), plan())],
    "job_exists": [
        lambda: (problem(), replace(plan(), jobs=(*plan().jobs, PlacedJob("lab/none", "n3", 1, 20, 4)))),
    ],
    "job_gpu_exists": [lambda: (problem(), with_job(SLOW, gpu=2)), lambda: (problem(), with_job(SLOW, node="n9"))],
    "job_profiled": [lambda: (slow_on_big_only(), plan())],
    "job_sm_profiled": [
        lambda: (problem(), with_job(SLOW, sm_percent=21)),
        lambda: (problem(), with_job(TUNE, sm_percent=40.5)),
    ],
    "job_memory_covers": [lambda: (problem(), with_job(SLOW, memory_gib=3.9))],
    "job_may_open": [
        lambda: (problem(), with_job(SLOW, node="n4", gpu=0)),
        lambda: (job_of("lab/slow", max_price_per_hour=0.9), with_job(SLOW, node="n4", gpu=0)),
    ],
    "runs_once": [
        lambda: (problem(), replace(plan(), jobs=(*plan().jobs, PlacedJob("lab/slow", "n3", 1, 20, 4)))),
        lambda: (problem(), replace(plan(), unplaced=(*plan().unplaced, Unplaced("lab/tune")))),
        lambda: (problem(), replace(plan(), unplaced=plan().unplaced * 2)),
    ],
    "deadline_met": [
        lambda: (job_of("lab/tune", units=7000), plan()),  # 2 a second, less its neighbour's slowdown, for an hour
        lambda: (problem(), replace(plan(), unplaced=())),
        lambda: (job_of("lab/tune", deadline=NOON.replace(hour=10)), plan()),
    ],
    "running_job_stays": [
        lambda: (running("lab/slow", "n3", 1), plan()),
        lambda: (running("lab/slow", "n3", 0), without("lab/slow")),
    ],
}


def rates(first: float, second: float) -> Plan:
    """search's two instances with other rates."""
    changed = with_instance(SEARCH_0, rate_per_second=first)
    instances = list(changed.instances)
    instances[SEARCH_1] = replace(instances[SEARCH_1], rate_per_second=second)
    return replace(changed, instances=tuple(instances))


def together() -> Plan:
    """search's two largest instances on one GPU, a third elsewhere."""
    instances = [
        instance("shop/search", "n1", 0, rate_per_second=15),
        instance("shop/search", "n1", 0, rate_per_second=15),
        instance("shop/search", "n1", 1, rate_per_second=10),
    ]
    return replace(plan(), instances=(*instances, *plan().instances[RANK:]), jobs=(), unplaced=())


def slow_on_big_only() -> Problem:
    profiles = problem().jobs["lab/slow"].profiles
    return job_of("lab/slow", profiles={"big": profiles["big"]})


CASES = [(rule, number, case) for rule, cases in BREAKS.items() for number, case in enumerate(cases)]


@pytest.mark.parametrize(("rule", "case"), [(r, c) for r, _, c in CASES], ids=[f"{r}-{n}" for r, n, _ in CASES])
def test_a_plan_that_breaks_one_rule_is_told_this_rule(rule: str, case: Callable[[], tuple[Problem, Plan]]) -> None:
    assert broken(*case()) == {rule}
