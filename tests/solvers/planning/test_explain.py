"""Reasons name the limit that binds; every change named, applied, serves the service beside all others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planning import explain
from solvers.planning.explain.thin import cost
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Demand, GpuType, Limit, Node, Policy, Problem, Profile, Service, Variant
from solvers.planning.solve import Budget, solve
from tests.solvers.planning.random_problems import random_problem
from tests.support.soak import scaled

QUICK = Budget(seconds=None, work=0)
CURVES = {1: ((10, 30.0), (50, 10.0), (100, 8.0)), 4: ((10, 60.0), (50, 20.0), (100, 16.0))}


def world(**fields: object) -> Problem:
    """One service on one GPU of one type, with room for more of the same."""
    demand = Demand(cpu_cores=2, host_memory_gib=4, power_w=((10, 20), (100, 110)))
    service = Service("shop/a", "shop", "m", ("v",), slo_ms=80, percentile=98, rate_per_second=50)
    problem = Problem(
        gpu_types={"big": GpuType("big", 16, 40, 300, (1000,)), "old": GpuType("old", 8, 20, 100, (1000,))},
        nodes={"n1": Node("n1", "big", 2, 16, 64, 2.0)},
        models={"m": (Variant("v", 0.8), Variant("w", 0.7))},
        profiles={
            (model, "v", "big"): Profile(model, "v", "big", CURVES, {1: 2.0, 4: 3.0}, demand) for model in ("m",)
        },
        services={service.name: service},
    )
    return replace(problem, **fields)  # type: ignore[arg-type]


def a(problem: Problem, **fields: object) -> Problem:
    """With other wishes of its service."""
    return replace(problem, services={"shop/a": replace(problem.services["shop/a"], **fields)})  # type: ignore[arg-type]


BIG = world()
BINDING = {
    "profile": (world(profiles={}), "no profile"),
    "slo": (a(BIG, slo_ms=8.0), "below the fastest exec, 8.4 ms"),
    "variants": (a(BIG, variants=()), "no variant"),
    "gpuTypes": (a(BIG, gpu_types=("old",)), "no GPU of its gpuTypes: old"),
    "minInstances": (a(BIG, min_instances=3), "minInstances 3 must stand on different GPUs, and 2 of the fleet"),
    "tenant": (world(limits={"shop": Limit(gpus=0.05)}), "the limit of tenant shop, 0.05 GPUs (0 taken)"),
    "power": (world(policy=Policy(power_budget_w=81)), "powerBudgetW 81, of which"),
    "cpu": (world(nodes={"n1": Node("n1", "big", 2, 1, 64, 2.0)}), "the CPU cores that one instance takes"),
    "host": (world(nodes={"n1": Node("n1", "big", 2, 16, 1, 2.0)}), "the host memory that one instance takes"),
    "full": (a(BIG, rate_per_second=5000.0), "the fleet is full"),
}


@pytest.mark.parametrize("limit", BINDING)
def test_the_binding_limit_is_named(limit: str) -> None:
    problem, words = BINDING[limit]
    (left,) = solve(problem, QUICK).unserved
    assert words in left.reason


def test_an_slo_below_the_fastest_exec_is_raised_to_what_serves() -> None:
    problem = a(BIG, slo_ms=8.0)
    plan = solve(problem, QUICK)
    change = explain.least(explain.case(problem, plan, "shop/a"))
    assert change
    assert change.dimension == "slo"
    assert change.problem.services["shop/a"].slo_ms == float(change.words.split()[1])
    assert solve(change.problem, QUICK).unserved == ()


def test_a_service_served_in_part_may_ask_for_what_is_served() -> None:
    problem = a(BIG, rate_per_second=5000.0)
    plan = solve(problem, QUICK)
    changes = {one.dimension: one for one in explain.relaxations(explain.case(problem, plan, "shop/a"))}
    served = sum(one.rate_per_second for one in plan.instances)
    assert changes["rate"].problem.services["shop/a"].rate_per_second >= served * (1 - 1e-3)


def test_where_two_limits_bind_no_single_change_is_claimed() -> None:
    problem = a(world(limits={"shop": Limit(gpus=0.0)}), slo_ms=8.0)
    plan = solve(problem, QUICK)
    assert plan.unserved[0].relaxation == explain.NOTHING_HELPS


def test_an_slo_that_allows_hardly_any_load_is_served_with_the_slo_of_half_the_cost() -> None:
    problem = a(BIG, slo_ms=9.0, rate_per_second=4.0)
    plan = solve(problem, QUICK)
    assert plan.unserved == ()
    (words,) = plan.warnings
    slo_ms = float(words.split("; at ")[1].split()[0])
    now, then = (cost(problem, replace(problem.services["shop/a"], slo_ms=ms), {}) for ms in (9.0, slo_ms))
    assert now / 2 * 0.9 < then <= now / 2
    assert solve(a(problem, slo_ms=200.0), QUICK).warnings == ()


def test_beyond_twenty_reasons_are_short() -> None:
    services = {f"shop/s{i}": replace(BIG.services["shop/a"], name=f"shop/s{i}", slo_ms=8.0) for i in range(22)}
    problem = replace(BIG, services=services)
    told = explain.explained(problem, Plan((), unserved=tuple(Unserved(name, 50.0) for name in services)))
    assert sum(bool(one.relaxation) for one in told) == explain.IN_FULL
    assert all("below the fastest exec" in one.reason for one in told)


@pytest.mark.parametrize("seed", range(0, 500, scaled(1, 25)))
def test_every_change_named_serves_when_it_is_applied(seed: int) -> None:
    problem = random_problem(seed)
    plan = solve(problem, QUICK)
    for left in plan.unserved:
        assert left.reason
        about = explain.case(problem, plan, left.service)
        changes = list(explain.relaxations(about))
        least = min(changes, key=lambda one: one.relative, default=None)
        assert left.relaxation == (least.words if least else explain.NOTHING_HELPS)
        for change in changes:
            verdict = judge(change.problem, change.plan)
            assert verdict.violations == (), change.words
            assert verdict.misstated == (), change.words
            assert left.service not in {one.service for one in change.plan.unserved}
            assert shapes(plan, left.service) == shapes(change.plan, left.service)


def shapes(plan: Plan, but: str) -> set[tuple[object, ...]]:
    """What the others keep."""
    return {
        (one.id, one.place, one.variant, one.batch, one.sm_percent, one.memory_gib, one.clock_mhz, one.rate_per_second)
        for one in plan.instances
        if one.service != but
    }
