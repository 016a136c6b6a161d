"""Chooses the division of a problem's services: one that serves everything, and by the least cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from solvers.planning.judge import judge_services
from solvers.planning.parts.divide import Division, divider
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.drafts import drafts, prepare
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables

SMALL_GPUS = 32  # of a fleet: as many are divided in several ways
TURNS = 6
DRAFT_WORK = 3  # steps of the search, by which divisions are compared


def divided(problem: Problem) -> Division | None:
    """Returns the problem with its services divided; None where no service asks for it.

    What is left when a node is lost keeps its SLOs. Where nothing of that kind serves everything, it carries the rate.
    """
    begun = divider(problem, problem.state.running if problem.state else ())
    if begun is None:
        return None
    is_small = sum(node.gpu_count for node in problem.nodes.values()) <= SMALL_GPUS
    best, least = None, (True, inf)
    for keeps_slos in (True, False):
        for turn in range(TURNS if is_small else 1):
            division = replace(begun, keeps_slos=keeps_slos, turn=turn).division()
            found = _weighed(division)
            if best is None or found < least:
                best, least = division, found
        survives = any(service.availability.survive_nodes for service in begun.services.values())
        if not least[0] or not survives:
            break
    return best


def is_served(problem: Problem) -> bool:
    """Tells if a quick search finds a plan that serves everything by the rules."""
    division = divided(problem)
    return division is None or not _weighed(division)[0]


def _weighed(division: Division) -> tuple[bool, float]:
    """Returns whether anything is left unserved, and about what the plan of a division costs."""
    missed = [division.whole.services[name] for name in division.impossible]
    price = division.whole.policy.unserved_price
    beside = sum(price * service.priority / 100 * max(service.rate_per_second, 1.0) for service in missed)
    best = (True, inf)
    for draft in drafts(prepare(tables(division.problem)), 0):
        if draft.method:
            best = min(best, (bool(missed) or not draft.ends_the_beginning, draft.cost + beside))
        if draft.work >= DRAFT_WORK or not best[0]:
            break
    return best


def divided_as(problem: Problem, plan: Plan) -> Division | None:
    """Returns the problem with its services divided as this plan serves them."""
    begun = divider(problem, plan.instances)
    if begun is None:
        return None
    choices: Iterator[Division] = (replace(begun, keeps_slos=keeps).division() for keeps in (True, False))
    for division in choices:
        if judge_services(division.problem, division.of_plan(plan), keep).is_right:
            break
    return division
