"""On random problems each named change serves the service, and no reason contradicts the plan."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from solvers.planning import explain
from solvers.planning.explain.fleet import fleet
from solvers.planning.explain.proposals import Relaxation
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Limit, Problem
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.every_change import every_change
from tests.solvers.planning.random_problems import random_problem
from tests.support.soak import scaled

QUICK = SolveBudget(seconds=None, work=0)
PROBLEMS = 600
STEP = PROBLEMS // scaled(PROBLEMS, 5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, PROBLEMS, STEP))
def test_every_change_named_serves_and_no_reason_contradicts_the_plan(seed: int) -> None:
    problem = scarce(random_problem(seed), Random(seed))
    plan = solve(problem, QUICK)
    for left in plan.unserved:
        about = explain.case(problem, plan, left.service)
        explanation = explain.explain_service(about, fleet(about.rooms))
        assert (left.reason, left.relaxation) == (explanation.reason, explanation.relaxation)
        assert explanation.is_whole
        changes = every_change(about)
        for change in changes:
            serves(plan, left.service, change)
        if explanation.change and explanation.change.dimension in ("priority", "unservedPrice"):
            is_worth_it(plan, left.service, explanation.change)
        elif explanation.change:
            assert explanation.change.words in left.relaxation
            assert explanation.change.words == min(changes, key=lambda change: change.relative).words
        elif left.relaxation != explain.MORE_WORK:
            assert not changes
        agrees(problem, plan, left)


def serves(plan: Plan, name: str, change: Relaxation) -> None:
    """Checks that the judge accepts the plan of a change, and that all others keep what they have."""
    verdict = judge(change.problem, change.plan)
    assert verdict.violations == (), change.words
    assert verdict.misstated == (), change.words
    assert name not in {unserved.service for unserved in change.plan.unserved}
    assert kept(plan, name) == kept(change.plan, name)


def is_worth_it(plan: Plan, name: str, change: Relaxation) -> None:
    """Checks that under the new price the plan that serves it costs no more than the one that does not."""
    assert judge(change.problem, change.plan).violations == ()
    assert kept(plan, name) == kept(change.plan, name)
    with_it, without = (judge(change.problem, some, simulate=False).cost.total for some in (change.plan, plan))
    assert with_it <= without * (1 + 1e-6) + 1e-9


def agrees(problem: Problem, plan: Plan, left: Unserved) -> None:
    """Checks the reason's statements on GPUs, limits and rooms."""
    service = problem.services[left.service]
    reason = left.reason
    assert reason
    taken = {instance.place for instance in plan.instances} | {job.place for job in plan.jobs}
    if "the fleet is full" in reason:
        empty = {
            name: replace(node, gpus=free)
            for name, node in problem.nodes.items()
            if (free := tuple(gpu for gpu in node.gpus if (name, gpu) not in taken))
        }
        alone = replace(service, rate_per_second=1e-3, min_instances=1)
        room = replace(problem, nodes=empty, services={alone.name: alone}, jobs={}, limits={}, state=None)
        room = replace(room, policy=replace(room.policy, power_budget_w=None, unserved_price=1e9))
        assert not empty or solve(room, QUICK).instances == (), reason
    if reason.startswith("the limit of tenant"):
        assert service.tenant in problem.limits
    if "powerBudgetW" in reason:
        assert problem.policy.power_budget_w is not None
    if "has no profile at all" in reason:
        assert not any(key[0] == service.model for key in problem.profiles)
    if "is below the fastest exec" in reason:
        quickest = min(
            time for key, profile in problem.profiles.items() if key[0] == service.model
            for curve in profile.latency_ms.values() for _, time in curve
        )  # fmt: skip
        assert service.slo_ms < quickest * (1 + problem.policy.exec_margin) or service.gpu_types or service.variants
    if "must run on different GPUs" in reason:
        assert service.min_instances > int(reason.split(", and only ")[1].split()[0])
    if "leaving it out costs" in reason:
        assert left.rate_per_second * problem.policy.unserved_price * service.priority < 1e4


def scarce(problem: Problem, r: Random) -> Problem:
    """Makes some problems scarce: a low unservedPrice, a tight limit, or an SLO that nothing can keep."""
    services = dict(problem.services)
    name = r.choice(sorted(services))
    twist = r.randrange(8)
    if twist == 0:
        price = r.choice([0.0, 0.001, 0.05, 1.0])
        return replace(problem, policy=replace(problem.policy, unserved_price=price))
    if twist == 1:
        limit = Limit(r.choice([0.0, 0.1, 0.5, 1.0]), r.choice([None, None, 0.5]))
        return replace(problem, limits={services[name].tenant: limit})
    if twist == 2:
        services[name] = replace(services[name], slo_ms=services[name].slo_ms * 10 ** r.uniform(-8, -1))
    elif twist == 3:
        services[name] = replace(services[name], min_instances=r.choice([4, 40, 10_000]))
    elif twist == 4:
        services[name] = replace(services[name], rate_per_second=services[name].rate_per_second * 30)
    elif twist == 5:
        gone = services[name].model
        return replace(problem, profiles={key: profile for key, profile in problem.profiles.items() if key[0] != gone})
    return replace(problem, services=services)


def kept(plan: Plan, but: str) -> set[tuple[object, ...]]:
    """Returns what the others keep."""
    return {
        (
            instance.id,
            instance.place,
            instance.variant,
            instance.batch,
            instance.sm_percent,
            instance.memory_gib,
            instance.clock_mhz,
            instance.rate_per_second,
        )
        for instance in plan.instances
        if instance.service != but
    }
