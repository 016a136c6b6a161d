"""Finds what the fleet could cost at one moment: the cheapest plan known for it, and a bound that no plan beats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from solvers.planning.judge import judge_services
from solvers.planning.plan import Plan, list_unserved
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, find

FRESH_WORK_FACTOR = 37  # times the work of a cycle: 2,220 steps by default; ten seconds of a core make 700 to 2,215


@dataclass(frozen=True, slots=True)
class FreshCost:
    """The price an hour of the cheapest known plan's GPUs, that plan, and a bound of all plans that serve as much."""

    per_hour: float
    bound_per_hour: float
    plan: Plan


def search_fresh(problem: Problem, work: int, seed: int) -> Plan:
    """Searches a certified plan as if nothing ran yet. Jobs run on what services leave, and energy is left out."""
    return find(bare_problem(problem), SolveBudget(None, FRESH_WORK_FACTOR * work, seed), alone=True).plan


def cheapest(problem: Problem, found: Plan, known: Iterable[Plan]) -> FreshCost:
    """Returns the cheapest right plan of a search for this problem and of others, with the bound of the search.

    Only services and the prices of GPUs count. Where no plan serves everything, load that is not served counts at its
    price in the choice, and not in the result.
    """
    bare, plan, certificate = bare_problem(problem), found, found.certificate
    assert certificate
    best = certificate.cost
    for other in known:
        same = set_rates(bare, other)
        verdict = judge_services(bare, same, keep) if same else None
        if same and verdict and verdict.is_right and verdict.cost.total < best.total:
            plan, best = same, verdict.cost
    # Any plan costs the bound or more, so that one with no more unserved load has GPUs for at least the rest.
    return FreshCost(best.resource, min(best.resource, max(0.0, (certificate.bound or 0.0) - best.unserved)), plan)


def bare_problem(problem: Problem, rates: Mapping[str, float] | None = None) -> Problem:
    """Returns the problem of a fleet on which nothing runs, with other rates if they are given."""
    state = RunningState(problem.state.now) if problem.state else None
    policy = replace(problem.policy, energy_price_per_kwh=0.0, money_weight=1.0)
    bare = replace(problem, jobs={}, state=state, policy=policy)
    return bare.change_rates(rates) if rates else bare


def serves_all(problem: Problem, plan: Plan) -> bool:
    """Returns whether the plan breaks no rule and carries the whole rate of every service."""
    return not list_unserved(problem, plan.instances) and judge_services(problem, plan, keep).is_right


def set_rates(problem: Problem, plan: Plan) -> Plan | None:
    """Returns the plan with each service at the problem's rate, divided as before; None if it lacks a service."""
    carried = dict.fromkeys(problem.services, 0.0)
    for instance in plan.instances:
        if instance.service not in carried or instance.node not in problem.nodes:
            return None
        carried[instance.service] += instance.rate_per_second
    if min(carried.values(), default=0.0) <= 0:
        return None
    factors = {name: service.rate_per_second / carried[name] for name, service in problem.services.items()}
    return Plan(
        tuple(
            replace(instance, rate_per_second=instance.rate_per_second * factors[instance.service])
            for instance in plan.instances
        )
    )
