"""Reasons name the limit that binds, and every change that they name serves the service next to all others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planning import explain
from solvers.planning.explain.fleet import fleet
from solvers.planning.explain.thin import cost
from solvers.planning.fleet.offers import NO_GPU
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Limit,
    LimitSource,
    Node,
    Policy,
    Problem,
    Profile,
    Service,
    Variant,
)
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.every_change import every_change

QUICK = SolveBudget(seconds=None, work=0)
CURVES = {1: ((10, 30.0), (50, 10.0), (100, 8.0)), 4: ((10, 60.0), (50, 20.0), (100, 16.0))}


def world(**fields: object) -> Problem:
    """One service on one GPU of one type, with room for more of the same."""
    demand = Demand(cpu_cores=2, host_memory_gib=4, power_w=((10, 20), (100, 110)))
    service = Service("shop/a", "shop", "m", ("v",), slo_ms=80, percentile=98, rate_per_second=50)
    problem = Problem(
        gpu_types={"big": GpuType("big", 16, 40, 300, (1000,)), "old": GpuType("old", 8, 20, 100, (1000,))},
        nodes={"n1": Node("n1", "big", (0, 1), 16, 64, 2.0)},
        models={"m": (Variant("v", 0.8), Variant("w", 0.7))},
        profiles={
            (model, "v", "big"): Profile(model, "v", "big", CURVES, {1: 2.0, 4: 3.0}, demand) for model in ("m",)
        },
        services={service.name: service},
    )
    return replace(problem, **fields)  # type: ignore[arg-type]


def a(problem: Problem, **fields: object) -> Problem:
    """Returns the world with other fields of its service."""
    return replace(problem, services={"shop/a": replace(problem.services["shop/a"], **fields)})  # type: ignore[arg-type]


BIG = world()
MIXED = replace(
    world(nodes={"n1": Node("n1", "big", (0,), 16, 64, 2.0), "n2": Node("n2", "old", (0, 1), 16, 64, 1.0)}),
    models={"m": (Variant("v", 0.8),), "n": (Variant("v", 0.8),)},
)
BINDING = {
    "profile": (world(profiles={}), "model m has no profile at all; a profile of v on big (2 empty) would help"),
    "profile there": (
        a(MIXED, gpu_types=("old",)),
        "of v on old; it has one on big, which its gpuTypes exclude",
    ),
    "slo": (a(BIG, slo_ms=8.0), "below the fastest exec, 8.4 ms with execMargin (v on big); its rate needs"),
    "slo, tiny": (a(BIG, slo_ms=1e-7), "its SLO of 1e-07 ms is below the fastest exec, 8.4 ms"),
    "variants": (a(BIG, variants=()), "no variant"),
    "gpuTypes": (a(BIG, gpu_types=("old",)), "no GPU of its gpuTypes: old"),
    "minInstances": (a(BIG, min_instances=3), "minInstances 3 must run on different GPUs, and only 2 of the fleet"),
    "tenant": (world(limits={"shop": Limit(gpus=0.05)}), "the limit of tenant shop, 0.05 GPUs (0 taken)"),
    "tenant's price": (world(limits={"shop": Limit(price_per_hour=0.1)}), "shop, 0.1 an hour (0 taken)"),
    "tenant's share": (
        world(limits={"shop": Limit(0.05, source="share")}),
        "what guarantees leave of them for tenant",
    ),
    "tenant's budget": (
        world(limits={"shop": Limit(0.05, source="budget")}),
        "the budget is used up of tenant shop",
    ),
    "power": (world(policy=Policy(power_budget_w=81)), "powerBudgetW 81, of which"),
    "cpu": (world(nodes={"n1": Node("n1", "big", (0, 1), 1, 64, 2.0)}), "the CPU cores that one instance takes"),
    "host": (world(nodes={"n1": Node("n1", "big", (0, 1), 16, 1, 2.0)}), "the host memory that one instance takes"),
    "full": (a(BIG, rate_per_second=5000.0), "the fleet is full: all 2 GPUs that may run it are in use"),
    "full for it": (a(MIXED, rate_per_second=5000.0), "empty but unusable for it: 2 of old (no profile)"),
    "price 0": (
        world(policy=Policy(unserved_price=0.0)),
        "unservedPrice is 0, so leaving it out costs nothing; serving",
    ),
}


@pytest.mark.parametrize("limit", BINDING)
def test_the_binding_limit_is_named(limit: str) -> None:
    problem, words = BINDING[limit]
    (left,) = solve(problem, QUICK).unserved
    assert words in left.reason


def test_a_fleet_without_gpus_needs_one() -> None:
    problem = world(nodes={})
    explanation = explain.explained(problem, Plan((), (), (Unserved("shop/a", 50.0),)))
    assert explanation[0].reason == NO_GPU
    assert explanation[0].relaxation.startswith("one more GPU of big (on a node with 2 CPU cores and 4 GiB for each)")


def test_one_more_gpu_is_described_by_its_node_and_never_by_the_name_of_one() -> None:
    nodes = {"secret-1": Node("secret-1", "big", (0, 1), 16, 64, 2.0, caps_w=(200.0, 300.0))}
    problem = a(world(nodes=nodes, limits={"shop": Limit(price_per_hour=1000.0)}), rate_per_second=5000.0)
    (left,) = explain.explained(problem, Plan((), unserved=(Unserved("shop/a", 5000.0),)))
    changes = every_change(explain.case(problem, Plan((), unserved=(left,)), "shop/a"))
    (more,) = [change.words for change in changes if change.dimension == "gpus"]
    assert more.endswith("GPUs of big (on a node with 16 CPU cores and 64 GiB for each, at 2 an hour, with capW 300)")
    assert "secret-1" not in left.reason + left.relaxation + "".join(change.words for change in changes)


def test_room_that_the_judge_refuses_is_not_called_too_small() -> None:
    other = replace(BIG.services["shop/a"], name="shop/b", rate_per_second=1.0)
    problem = replace(BIG, services={**BIG.services, "shop/b": other})
    plan = Plan((), (), (Unserved("shop/a", 50.0),))  # it forgets shop/b, so every plan that keeps the rest is wrong
    (left,) = explain.explained(problem, plan)
    assert left.reason.startswith("what other services leave has room for its whole rate, but a plan that only adds")


@pytest.mark.parametrize("source", ["share", "budget"])
def test_a_limit_that_is_not_declared_is_not_called_a_limit_and_not_to_be_raised(source: LimitSource) -> None:
    problem = world(limits={"shop": Limit(0.05, source=source)})
    plan = solve(problem, QUICK)
    changes = every_change(explain.case(problem, plan, "shop/a"))
    assert "limit" not in {change.dimension for change in changes}
    assert "limit" not in plan.unserved[0].reason + plan.unserved[0].relaxation


def test_an_slo_below_the_fastest_exec_is_raised_to_what_serves() -> None:
    problem = a(BIG, slo_ms=8.0)
    plan = solve(problem, QUICK)
    change = explain.least_relaxation(explain.case(problem, plan, "shop/a")).least
    assert change
    assert change.dimension == "slo"
    assert change.problem.services["shop/a"].slo_ms == float(change.words.split()[1])
    assert solve(change.problem, QUICK).unserved == ()


def test_a_service_served_in_part_may_ask_for_what_is_served() -> None:
    problem = a(BIG, rate_per_second=5000.0)
    plan = solve(problem, QUICK)
    changes = {change.dimension: change for change in every_change(explain.case(problem, plan, "shop/a"))}
    served = sum(instance.rate_per_second for instance in plan.instances)
    assert changes["rate"].problem.services["shop/a"].rate_per_second >= served * (1 - 1e-3)


def test_where_two_limits_bind_no_single_change_is_claimed() -> None:
    problem = a(world(limits={"shop": Limit(gpus=0.0)}), slo_ms=8.0)
    (left,) = solve(problem, QUICK).unserved
    assert left.relaxation.startswith(f"{explain.NOTHING_HELPS}; in any case, slo.latencyMs must be at least ")


def test_an_slo_far_below_any_exec_is_told_the_one_it_needs() -> None:
    (left,) = solve(a(BIG, slo_ms=1e-7), QUICK).unserved
    slo_ms = float(left.relaxation.removeprefix("slo.latencyMs: ").split()[0])
    assert "times)" in left.relaxation
    assert solve(a(BIG, slo_ms=slo_ms), QUICK).unserved == ()
    assert solve(a(BIG, slo_ms=slo_ms * 0.98), QUICK).unserved


@pytest.mark.slow
@pytest.mark.parametrize("limit", [Limit(gpus=0.2), Limit(price_per_hour=0.4), Limit(gpus=0.2, price_per_hour=0.4)])
def test_a_tenants_limit_that_binds_is_named_with_its_least_raise(limit: Limit) -> None:
    problem = a(world(limits={"shop": limit}), rate_per_second=120.0)
    (left,) = solve(problem, QUICK).unserved
    assert left.reason.endswith("of tenant shop would be enough")
    plan = Plan((), unserved=(left,))
    (change,) = [
        change for change in every_change(explain.case(problem, plan, "shop/a")) if change.dimension == "limit"
    ]
    assert change.words in left.reason
    assert judge(change.problem, change.plan).violations == ()
    raised = change.problem.limits["shop"]
    almost = Limit(nearly(limit.gpus, raised.gpus), nearly(limit.price_per_hour, raised.price_per_hour))
    assert solve(replace(problem, limits={"shop": almost}), SolveBudget(seconds=None, work=20)).unserved


def nearly(now: float | None, raised: float | None) -> float | None:
    return None if now is None or raised is None else now + (raised - now) * 0.98


@pytest.mark.parametrize(("price", "named"), [(0.0, "unservedPrice"), (0.01, "priority"), (0.001, "unservedPrice")])
def test_what_is_not_worth_serving_is_told_the_price_at_which_it_is(price: float, named: str) -> None:
    problem = world(policy=Policy(unserved_price=price))
    plan = Plan((), unserved=(Unserved("shop/a", 50.0),))
    about = explain.case(problem, plan, "shop/a")
    explanation = explain.explain_service(about, fleet(about.rooms))
    change = explanation.change
    assert change
    assert ("not worth it" if price else "leaving it out costs nothing") in explanation.reason
    assert explanation.relaxation == change.words
    assert change.dimension == named
    served, unserved = (judge(change.problem, some, simulate=False).cost.total for some in (change.plan, plan))
    assert served <= unserved * (1 + 1e-9)
    assert served >= unserved * 0.9
    assert solve(change.problem, QUICK).unserved == ()


def test_gpus_that_stand_empty_are_not_called_full() -> None:
    limited = world(limits={"shop": Limit(gpus=0.05)})
    for problem in (limited, world(policy=Policy(power_budget_w=81)), a(BIG, min_instances=3)):
        plan = solve(problem, QUICK)
        assert plan.instances == ()
        assert "full" not in plan.unserved[0].reason


def test_where_shares_are_priced_nobody_leaves_room_that_slows_the_others_too_much() -> None:
    """B carries all it may next to A: without A, strangers would use its SMs, and B would be too slow."""
    demand = Demand(sensitivity=0.5, pressure=((100, 0.0),))
    profiles = {
        (model, "v", "big"): Profile(model, "v", "big", CURVES, {1: 2.0, 4: 3.0}, demand) for model in ("m", "n")
    }
    b = Service("shop/b", "shop", "n", ("v",), slo_ms=200, percentile=98, rate_per_second=79.9)
    for pricing, may_leave in (("share", False), ("gpu", True)):
        problem = world(
            models={"m": (Variant("v", 0.8),), "n": (Variant("v", 0.8),)},
            profiles=profiles,
            services={"shop/a": replace(BIG.services["shop/a"], rate_per_second=60.0), "shop/b": b},
            policy=Policy(pricing=pricing, share_pressure=1.0),  # type: ignore[arg-type]
        )
        stand = [
            Instance("a", "shop/a", "n1", 0, "v", 1, 0.0, 50, 2.0, 1000, 30.0, 10.0),
            Instance("b", "shop/b", "n1", 0, "v", 1, 0.0, 50, 2.0, 1000, 79.9, 10.0),
        ]
        plan = Plan(tuple(stand), unserved=(Unserved("shop/a", 30.0),))
        assert judge(problem, plan).violations == ()
        about = explain.case(problem, plan, "shop/a")
        assert (about.if_replaced is not None) == may_leave
        assert every_change(about)


def test_many_instances_wanted_cost_no_more_to_explain() -> None:
    problem = a(BIG, min_instances=10_000)
    about = explain.case(problem, Plan((), unserved=(Unserved("shop/a", 50.0),)), "shop/a")
    explanation = explain.explain_service(about, fleet(about.rooms))
    assert "minInstances 10000 must run on different GPUs" in explanation.reason
    assert explanation.relaxation == "minInstances: 2 (now 10000)"
    assert about.notes.meter.steps < 1_000_000


def test_reasons_that_are_cut_short_say_so() -> None:
    problem = a(BIG, rate_per_second=5000.0)
    plan = solve(problem, QUICK)
    for steps in (1, 10_000, 20_000, 50_000):
        (left,) = explain.explained(problem, plan, steps, steps)
        assert explain.CUT in left.relaxation
    (left,) = explain.explained(problem, plan, 1, 1)
    assert "the steps for explanations ran out before every limit was checked" in left.reason
    (whole,) = explain.explained(problem, plan)
    assert explain.CUT not in whole.relaxation
    assert explain.explained(problem, plan) == (whole,)


def test_an_slo_that_allows_hardly_any_load_is_served_with_the_slo_of_half_the_cost() -> None:
    problem = a(BIG, slo_ms=9.0, rate_per_second=4.0)
    plan = solve(problem, QUICK)
    assert plan.unserved == ()
    (words,) = plan.warnings
    slo_ms = float(words.split("; an SLO of ")[1].split()[0])
    kinds = fleet(FleetRooms(problem, (), ()))
    now, then = (cost(kinds, replace(problem.services["shop/a"], slo_ms=ms)) for ms in (9.0, slo_ms))
    assert now / 2 * 0.9 < then <= now / 2
    assert solve(a(problem, slo_ms=200.0), QUICK).warnings == ()


def test_beyond_twenty_reasons_are_short() -> None:
    services = {f"shop/s{i}": replace(BIG.services["shop/a"], name=f"shop/s{i}", slo_ms=8.0) for i in range(22)}
    problem = replace(BIG, services=services)
    explanation = explain.explained(problem, Plan((), unserved=tuple(Unserved(name, 50.0) for name in services)))
    assert sum(bool(unserved.relaxation) for unserved in explanation) == explain.FULL_SERVICES
    assert all("below the fastest exec" in unserved.reason for unserved in explanation)
