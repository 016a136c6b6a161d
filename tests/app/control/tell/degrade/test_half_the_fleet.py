"""Half the nodes are lost: variants step down first, then the lightest services are left out, then gateways shed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.domain.events import Reason
from app.control.domain.snapshot import ExpectedLoad
from app.control.formulate.running import running_plan
from app.control.tell.degrade.degradation import find_degraded
from app.control.tell.degrade.shedding import SloTarget, plan_shedding
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import GpuType, Node, Policy, Problem, Profile, RunningState, Service, Variant
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve

LARGE = {1: ((10, 20.0), (50, 6.0), (100, 4.0)), 8: ((10, 80.0), (50, 20.0), (100, 12.0))}
SMALL = {batch: tuple((sm, ms / 3) for sm, ms in curve) for batch, curve in LARGE.items()}
SERVICES = {
    "shop/vital": Service("shop/vital", "shop", "m", ("large",), 200.0, 98.0, 1500.0, priority=1000),
    "shop/flexible": Service("shop/flexible", "shop", "m", ("large", "small"), 200.0, 98.0, 1500.0, priority=300),
    "lab/spare": Service("lab/spare", "lab", "m", ("large",), 200.0, 98.0, 1500.0, priority=10),
}


@pytest.fixture(scope="module")
def whole() -> Problem:
    memory = {1: 1.0, 8: 2.0}
    return Problem(
        gpu_types={"big": GpuType("big", 16.0, 40.0, 300.0, (1500.0,))},
        nodes={f"n{i}": Node(f"n{i}", "big", (0,), 32, 64, 2.0) for i in range(8)},
        models={"m": (Variant("large", 0.8), Variant("small", 0.7))},
        profiles={
            profile.key: profile
            for profile in (Profile("m", "large", "big", LARGE, memory), Profile("m", "small", "big", SMALL, memory))
        },
        services=SERVICES,
        policy=Policy(same_model_per_gpu=4),
    )


@pytest.fixture(scope="module")
def before(whole: Problem) -> Plan:
    plan = solve(whole, SolveBudget(work=3))
    assert plan.unserved == ()
    return plan


def half(whole: Problem, before: Plan) -> tuple[Problem, set[str]]:
    """Every other node is gone."""
    lost = set(sorted(whole.nodes)[::2])
    stay = {name: node for name, node in whole.nodes.items() if name not in lost}
    running = tuple(instance for instance in before.instances if instance.node in stay)
    return replace(whole, nodes=stay, state=RunningState(running=running)), lost


@pytest.mark.slow
def test_variants_give_way_first_and_then_what_weighs_least_is_left_out(whole: Problem, before: Plan) -> None:
    problem, _ = half(whole, before)
    plan = solve(problem, SolveBudget(work=40))
    assert judge(problem, plan, simulate=False, keeps=keep).is_right
    assert {part.service for part in plan.unserved} == {"lab/spare"}
    assert all(part.reason and part.relaxation for part in plan.unserved)
    assert {instance.variant for instance in plan.instances if instance.service == "shop/flexible"} == {"small"}


def test_until_a_new_plan_is_made_gateways_shed_what_lost_nodes_carried(whole: Problem, before: Plan) -> None:
    """Also when the solver is down: the current plan is then all there is."""
    problem, lost = half(whole, before)
    running = running_plan(problem)
    expected = {name: ExpectedLoad(1500.0, observed_per_second=1500.0, observed_seconds=600.0) for name in SERVICES}
    sheds = plan_shedding(running, expected, {name: SloTarget(200.0) for name in SERVICES})
    alive = dict.fromkeys(SERVICES, 0.0)
    for instance in before.instances:
        if instance.node not in lost:
            alive[instance.service] += instance.rate_per_second
    for name, found in sheds.items():
        assert found.share == pytest.approx(1 - alive[name] / 1500.0, abs=0.05)
    why = find_degraded(problem, running, sheds, {})
    assert {degraded.reason for degraded in why.values()} <= {Reason.SHEDDING, Reason.QUEUEING}
    assert why.keys() == {part.service for part in running.unserved}


@pytest.mark.slow
def test_after_the_new_plan_only_what_is_left_out_is_shed(whole: Problem, before: Plan) -> None:
    problem, _ = half(whole, before)
    plan = solve(problem, SolveBudget(work=40))
    expected = {name: ExpectedLoad(1500.0, observed_per_second=1500.0, observed_seconds=600.0) for name in SERVICES}
    sheds = plan_shedding(plan, expected, {name: SloTarget(200.0) for name in SERVICES})
    assert [name for name, found in sheds.items() if found.share] == ["lab/spare"]
    assert set(find_degraded(problem, plan, sheds, {})) == {"lab/spare"}
