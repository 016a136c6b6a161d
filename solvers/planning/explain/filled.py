"""Serves services that a search left out although there is room for them next to the others."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.explain.applied import case, find_whole_offer
from solvers.planning.explain.ground import Ground, Notes
from solvers.planning.explain.meter import Meter, SpentError
from solvers.planning.explain.worth import worth
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.readings import Reader
from solvers.planning.plan import Plan, ServicePlan
from solvers.planning.problem import Problem

STEPS = 5_000_000  # about a third of a second
GROUND_STEPS = 300  # for each instance


def fill_unserved(problem: Problem, plan: Plan, steps: int = STEPS) -> Plan:
    """Serves those that are worth it, the most expensive to leave out first, as far as the steps go."""

    def missed(name_and_rate: tuple[str, float]) -> tuple[float, str]:
        name, rate = name_and_rate
        service = problem.services[name]
        return (-service.priority * service.unserved_weight * max(rate, 1.0), name)

    known, notes, reader = None, Notes(Meter(steps)), Reader(problem)
    try:
        for name, _ in sorted(((entry.service, entry.rate_per_second) for entry in plan.unserved), key=missed):
            if known is None:
                notes.meter.spend(GROUND_STEPS * len(plan.instances))
                known = Ground.of(FleetRooms(problem, plan.instances, plan.jobs, reader=reader))
            about = case(problem, plan, name, known, Notes(notes.meter))
            offered = find_whole_offer(about)
            gain = worth(about, offered) if offered else None
            if gain and gain.is_worth_it:
                plan, known = gain.plan, None
    except SpentError:
        pass
    return replace(plan, unserved=tuple(sorted(plan.unserved, key=lambda entry: entry.service)))


def add_services(problem: Problem, services: ServicePlan) -> ServicePlan:
    """Adds the unserved services for which there is free capacity, and says so in the origin."""
    plan = fill_unserved(problem, Plan(tuple(services.instances), unserved=tuple(services.unserved)))
    more = len(services.unserved) - len(plan.unserved)
    if not more:
        return services
    origin = f"{more} services added in free capacity; {services.origin or 'the plan'}"
    return ServicePlan(list(plan.instances), list(plan.unserved), origin)
