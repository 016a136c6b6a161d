"""Bounds what a plan leaves unserved, by priority, so that it shows what the GPUs lack and what the plan does."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from solvers.planning.beside import has_language_models, ordinary
from solvers.planning.bound import left_out
from solvers.planning.bound.unserved import bound_unserved
from solvers.planning.finish import sound_bound
from solvers.planning.parts.bound import relax_to_needed
from solvers.planning.plan import Plan, PriorityShortfall
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from solvers.planning.solved import SolveBudget

MOST_PRIORITIES = 4  # that have a bound: the highest of which load is left, and the lowest, with which all counts
SHARE_OF_WORK = 0.05  # of the budget, for all of them together
STEPS_A_SECOND = 1_000_000  # of the bound, about
STEPS_OF_WORK = 8_000  # of the bound, for each step of the planner: about the same time
MOST_STEPS = 1_000_000


def add_shortfalls(problem: Problem, plan: Plan, budget: SolveBudget) -> Plan:
    """Returns the plan with bounds of what it leaves unserved; as it is where all is served, or no work was asked for.

    They ignore what a bound of the cost ignores, and language models.
    """
    unserved = {entry.service: entry.rate_per_second for entry in plan.unserved}
    steps = _count_steps(budget)
    if not unserved or not plan.certificate or not steps:
        return plan
    found = sorted({problem.services[name].priority for name in unserved}, reverse=True)
    priorities = found if len(found) <= MOST_PRIORITIES else [*found[: MOST_PRIORITIES - 1], found[-1]]
    t = tables(relax_to_needed(ordinary(problem)))
    bounds = bound_unserved(t, priorities, steps)
    ignored = ", ".join([*left_out(t), *(["language models"] if has_language_models(problem) else [])])
    is_new = ignored not in plan.certificate.method  # a bound of the cost may have said so
    shortfalls, notes = [], [f"; bounds of unserved load ignore {ignored}"] if is_new else []
    for priority, bound in zip(priorities, bounds, strict=True):
        among = [service for service in problem.services.values() if service.priority >= priority]
        left = sum(unserved.get(service.name, 0.0) for service in among)
        sound, note = sound_bound(bound, left)
        shortfalls.append(PriorityShortfall(priority, sum(service.rate_per_second for service in among), left, sound))
        notes.append(note)
    method = plan.certificate.method + "".join(notes)
    return replace(plan, certificate=replace(plan.certificate, method=method, shortfalls=tuple(shortfalls)))


def _count_steps(budget: SolveBudget) -> int:
    """Returns the steps that the bounds may take: a small part of the budget, and the same on every machine."""
    given = [inf if budget.work is None else budget.work * STEPS_OF_WORK]
    given += [inf if budget.seconds is None else budget.seconds * STEPS_A_SECOND]
    return int(min(MOST_STEPS, SHARE_OF_WORK * min(given)))
