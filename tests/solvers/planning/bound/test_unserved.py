"""The bound of what is unserved is never above what a right plan leaves, and it is tight where one limit decides."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from benchmarks.families import FAMILIES, family
from solvers.planning.bound.unserved import bound_unserved
from solvers.planning.plan import Certificate, Cost, Plan, PriorityShortfall, Unserved, take_shortfalls
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from solvers.planning.shortfalls import add_shortfalls
from solvers.planning.solve import SolveBudget, draft_plan
from tests.solvers.planning.bound.tiny_plans import least_unserved
from tests.support.soak import scaled

PROBLEMS = scaled(300, 40)
PRIORITIES = (50, 100, 400)
WORK = 200_000


def short_problem(number: int) -> Problem:
    """Returns one to three GPUs, up to ten times as much load as they carry, and services of several priorities."""
    r = Random(number)
    problem = family(FAMILIES[number % len(FAMILIES)], r.randint(1, 3), r.randint(1, 3), number)
    by = r.choice([1.5, 3.0, 10.0])
    services = {
        name: replace(
            service,
            rate_per_second=by * service.rate_per_second,
            priority=r.choice(PRIORITIES),
            min_instances=r.choice([1, 1, service.min_instances]),
        )
        for name, service in problem.services.items()
    }
    return replace(problem, services=services)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PROBLEMS))
def test_no_plan_of_a_tiny_fleet_leaves_less_unserved_than_the_bound(number: int) -> None:
    problem = short_problem(number)
    priorities = sorted({service.priority for service in problem.services.values()}, reverse=True)

    bounds = list(bound_unserved(tables(problem), priorities, WORK))

    for priority, bound in zip(priorities, bounds, strict=True):
        least = least_unserved(problem, priority)
        assert bound is not None and bound <= least + 1e-9 * max(1.0, least)
    plan = add_shortfalls(problem, draft_plan(problem, SolveBudget(None, 40)), SolveBudget(None, 40))
    assert plan.certificate and bool(plan.certificate.shortfalls) == bool(plan.unserved)
    for shortfall in plan.certificate.shortfalls:
        assert shortfall.bound_per_second is not None
        assert 0.0 <= shortfall.bound_per_second <= shortfall.unserved_per_second <= shortfall.rate_per_second


def test_the_bound_is_what_is_left_where_a_service_needs_twice_the_gpu() -> None:
    problem = family("A", 1, 1, 7)
    ((name, service),) = problem.services.items()
    much = 1e6
    most = much - least_unserved(replace(problem, services={name: replace(service, rate_per_second=much)}), 0)
    twice = replace(problem, services={name: replace(service, rate_per_second=2 * most)})
    (bound,) = bound_unserved(tables(twice), [service.priority], WORK)
    assert bound is not None and most * (1 - 1e-3) <= bound <= most


def test_a_plan_that_serves_all_stays_as_it_is() -> None:
    plan = Plan((), certificate=Certificate(Cost(1.0, 0.0), 1.0, "", 0, 0.0))
    assert add_shortfalls(family("A", 1, 1, 7), plan, SolveBudget(None, 40)) is plan


def test_another_plan_of_the_same_problem_has_the_bound_beside_what_it_leaves_itself() -> None:
    problem = family("A", 1, 1, 7)
    ((name, service),) = problem.services.items()
    row = PriorityShortfall(service.priority, service.rate_per_second, 3.0, 2.0)
    searched = Plan((), certificate=Certificate(Cost(1.0, 0.0), 1.0, "", 0, 0.0, shortfalls=(row,)))

    def bounds(left: float) -> list[tuple[float, float | None]]:
        found = take_shortfalls(problem, Plan((), unserved=(Unserved(name, left),)), searched)
        return [(each.unserved_per_second, each.bound_per_second) for each in found]

    assert (bounds(5.0), bounds(1.0)) == ([(5.0, 2.0)], [(1.0, None)])
    assert take_shortfalls(problem, Plan(()), searched) == () == take_shortfalls(problem, searched, None)
