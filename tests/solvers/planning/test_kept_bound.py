"""A kept bound serves plans at other rates, says how old it is, and is void once anything else has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest

from benchmarks.families import family
from solvers.planning.kept_bound import KeptBound, add_bound
from solvers.planning.plan import Certificate, Cost
from solvers.planning.problem import Demand, Limit, Problem, RunningState
from solvers.planning.solve import SolveBudget, find

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=12)
BY_A_STEP = Certificate(Cost(1e6, 0.0), None, "a quick step", 0, 0.0)


@cache
def kept() -> KeptBound:
    problem = family("A", 12, 8, 1)
    duals = find(problem, SolveBudget(None, 3), alone=True).duals
    assert duals
    return KeptBound(problem, duals, NOON)


def first(objects: Any) -> Any:
    return next(iter(objects.values()))


def with_first(objects: Any, **fields: object) -> Any:
    return {**objects, next(iter(objects)): replace(first(objects), **fields)}


Change = Callable[[Problem], Problem]
VOIDING: dict[str, tuple[Change, str]] = {
    "profile": (
        lambda p: replace(p, profiles=with_first(p.profiles, demand=Demand(sensitivity=0.7))),
        "profiles",
    ),
    "belief": (
        lambda p: replace(
            p,
            profiles=with_first(
                p.profiles,
                latency_ms={
                    batch: tuple((sm, 1.01 * ms) for sm, ms in curve)
                    for batch, curve in first(p.profiles).latency_ms.items()
                },
            ),
        ),
        "profiles",
    ),
    "price of a GPU": (lambda p: replace(p, nodes=with_first(p.nodes, price_per_hour=0.1)), "prices"),
    "price of what is unserved": (lambda p: replace(p, policy=replace(p.policy, unserved_price=1.0)), "prices"),
    "a node less": (lambda p: replace(p, nodes=dict(list(p.nodes.items())[1:])), "the fleet"),
    "a GPU less": (lambda p: replace(p, nodes=with_first(p.nodes, gpus=(7,))), "the fleet"),
    "policy": (lambda p: replace(p, policy=replace(p.policy, utilization=0.7)), "the policy"),
    "a service's SLO": (lambda p: replace(p, services=with_first(p.services, slo_ms=1.0)), "services"),
    "a service less": (lambda p: replace(p, services=dict(list(p.services.items())[1:])), "services"),
    "a limit": (lambda p: replace(p, limits={first(p.services).tenant: Limit(gpus=1.0)}), "limits"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", VOIDING)
def test_it_is_void_as_soon_as_anything_but_rates_differs(what: str) -> None:
    change, named = VOIDING[what]
    found = add_bound(BY_A_STEP, change(kept().problem), kept(), LATER)
    assert found.bound is None
    assert found.gap is None
    assert named in found.no_bound_reason
    assert found.no_bound_reason.endswith("changed since it was computed")


def test_everything_that_changed_is_named() -> None:
    problem = kept().problem
    changed = replace(
        problem, nodes=with_first(problem.nodes, price_per_hour=0.1), policy=replace(problem.policy, utilization=0.7)
    )
    found = add_bound(BY_A_STEP, changed, kept(), LATER)
    assert found.no_bound_reason == "prices and the policy changed since it was computed"


def test_at_other_rates_it_holds_and_says_how_old_it_is() -> None:
    problem = kept().problem
    name = next(iter(problem.services))
    rate = problem.services[name].rate_per_second
    lower, same, higher = (
        add_bound(BY_A_STEP, problem.change_rates({name: rate * factor}), kept(), LATER) for factor in (0.2, 1.0, 3.0)
    )
    assert lower.bound and same.bound and higher.bound
    assert lower.bound <= same.bound <= higher.bound
    assert same.bound == pytest.approx(kept().duals.found)
    assert same.bound_age_seconds == 12.0
    assert same.no_bound_reason == ""


def test_what_runs_what_waits_and_the_horizon_do_not_void_it() -> None:
    problem = kept().problem
    other = replace(
        problem, state=RunningState(NOON), jobs=family("F", 8, 4, 0).jobs, spare={"a": 3},
        policy=replace(problem.policy, horizon_minutes=3.0),
    )  # fmt: skip
    assert add_bound(BY_A_STEP, other, kept(), LATER).bound == pytest.approx(kept().duals.found)


@pytest.mark.slow
def test_where_shares_are_paid_jobs_that_appear_void_it() -> None:
    """Without jobs, SMs that no service takes are idle, and the bound counts that they slow services down."""
    problem = family("D", 8, 4, 1)
    assert not problem.jobs
    duals = find(problem, SolveBudget(None, 3), alone=True).duals
    assert duals
    add_jobs = replace(problem, jobs=family("F", 8, 4, 0).jobs)
    found = add_bound(BY_A_STEP, add_jobs, KeptBound(problem, duals, NOON), LATER)
    assert (found.bound, found.no_bound_reason) == (None, "jobs changed since it was computed")
    gone = add_bound(BY_A_STEP, problem, KeptBound(add_jobs, duals, NOON), LATER)
    assert gone.bound is not None


def test_without_a_search_there_is_none_and_the_reason_is_given() -> None:
    found = add_bound(BY_A_STEP, kept().problem, None, LATER)
    assert (found.bound, found.no_bound_reason) == (None, "no search has found one yet")


def test_a_plan_that_breaks_a_rule_and_costs_less_has_none() -> None:
    cheap = replace(BY_A_STEP, cost=Cost(0.01, 0.0))
    found = add_bound(cheap, kept().problem, kept(), LATER)
    assert (found.bound, found.no_bound_reason) == (None, "a plan that keeps every rule would cost more")
