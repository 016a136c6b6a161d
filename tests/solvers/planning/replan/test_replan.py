"""A running plan follows its rates: it is valid after every change, and no service moves without a new rate."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.families import family, multiply_gpus
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Limit, Problem, Service
from solvers.planning.replan import Replanner
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.small_fleets import fleets
from tests.support.soak import SOAK

NOW = SolveBudget(seconds=None, work=0)
factors = st.lists(st.lists(st.floats(0.3, 2.0), min_size=3, max_size=3), min_size=1, max_size=3)
quick = settings(max_examples=100 if SOAK else 6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pinned(plan: Plan, names: set[str]) -> set[tuple[object, ...]]:
    """Returns the places and sizes of these services' instances."""
    return {
        (i.service, i.node, i.gpu, i.variant, i.sm_percent, i.memory_gib) for i in plan.instances if i.service in names
    }


def some(problem: Problem, factor: list[float]) -> dict[str, float]:
    """New rates for those whose factor is not near 1."""
    named = zip(sorted(problem.services), factor, strict=False)
    return {name: problem.services[name].rate_per_second * f for name, f in named if not 0.8 < f < 1.2}


@pytest.mark.slow
@quick
@given(fleets(), factors, st.sampled_from(["gpu", "share"]))
def test_after_every_change_the_plan_is_right_and_the_others_stand_where_they_stood(
    problem: Problem, changes: list[list[float]], pricing: Literal["gpu", "share"]
) -> None:
    problem = replace(problem, policy=replace(problem.policy, pricing=pricing))
    plan = solve(problem, NOW)
    replanner = Replanner.of(problem, plan)
    for factor in changes:
        rates = some(replanner.problem, factor)
        before = replanner.plan
        replanner.change(rates)
        after = replanner.plan
        others = set(problem.services) - set(rates)
        assert pinned(before, others) == pinned(after, others)
        verdict = judge(replanner.problem, replace(after, certificate=None), simulate=True, keeps=keep)
        kept = replanner.judged_plan.verdict()
        assert not verdict.violations and not kept.violations
        assert verdict.cost.total == kept.cost.total
        assert not verdict.misstated


@pytest.mark.slow
@quick
@given(fleets(), factors)
def test_the_same_changes_give_the_same_plan(problem: Problem, changes: list[list[float]]) -> None:
    plan = solve(problem, NOW)
    replanner, other = Replanner.of(problem, plan), Replanner.of(problem, plan)
    for factor in changes:
        rates = some(replanner.problem, factor)
        replanner.change(rates)
        other.change(rates)
    assert replanner.plan == other.plan


@pytest.mark.slow
@quick
@given(fleets())
def test_rates_that_stay_change_nothing(problem: Problem) -> None:
    plan = solve(problem, NOW)
    assume(not plan.unserved)
    replanner = Replanner.of(problem, plan)
    replanner.change({name: service.rate_per_second for name, service in problem.services.items()})
    assert replanner.judged_plan.verdict().changes.made == 0


def test_a_service_too_large_for_the_fleet_asks_for_a_full_plan() -> None:
    problem = one_service()
    replanner = Replanner.of(problem, solve(problem, NOW))
    assert "shop/s" in replanner.change({"shop/s": 1e6})[0]
    assert not replanner.judged_plan.verdict().violations
    replanner.change({"shop/s": 10.0})
    assert not replanner.judged_plan.verdict().cost.unserved


def test_a_gpu_that_was_opened_and_given_back_is_opened_again_for_a_tenant_with_limits() -> None:
    problem = multiply_gpus(family("A", 8, 4, 0), 2)
    limits = {service.tenant: Limit(gpus=1000.0) for service in problem.services.values()}
    problem = replace(problem, limits=limits)
    replanner = Replanner.of(problem, solve(problem, NOW))
    rates = {name: service.rate_per_second for name, service in problem.services.items()}
    for _ in range(3):
        opened = {line.place for line in replanner.plan.instances}
        replanner.change({name: 1.6 * rate for name, rate in rates.items()})
        assert not replanner.judged_plan.verdict().cost.unserved
        assert {line.place for line in replanner.plan.instances} > opened
        replanner.change({name: 0.5 * rate for name, rate in rates.items()})


def test_what_was_wrong_before_a_change_starves_nobody() -> None:
    problem = multiply_gpus(family("A", 8, 4, 0), 2)
    plan = solve(problem, NOW)
    assert not plan.unserved
    first = plan.instances[0]
    patient = replace(first, batch_timeout_ms=problem.services[first.service].slo_ms)
    replanner = Replanner.of(problem, replace(plan, instances=(patient, *plan.instances[1:])))
    other = next(name for name in sorted(problem.services) if name != patient.service)
    reasons = replanner.change({other: problem.services[other].rate_per_second * 0.8})
    kept = replanner.judged_plan.verdict()
    assert {violation.where for violation in kept.violations} <= {f"{patient.service} on {patient.node}/{patient.gpu}"}
    assert not kept.cost.unserved
    assert bool(reasons) == bool(kept.violations)


def one_service() -> Problem:
    from tests.solvers.planning import small_world

    problem = small_world.problem()
    alone: Service = small_world.service("shop/s", "m", gpu_types=("big",))
    return replace(problem, services={"shop/s": alone}, jobs={}, limits={}, state=None)
