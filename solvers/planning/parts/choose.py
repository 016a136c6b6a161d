"""Chooses the division of a problem's services: one that serves everything, and by the least cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from solvers.planning.judge import judge_services
from solvers.planning.parts.divide import MOST_ZONES, Divider, Division, divider
from solvers.planning.parts.mixes import cheapest_mixes
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.drafts import drafts, prepare
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables

SMALL_GPUS = 32  # of a fleet: as many are divided in several ways
TURNS = 3
SMALL_WORK = 4  # steps of the search, by which divisions of a small fleet are compared
MOST_WORK = 16  # of them where the first leaves something unserved
MISFIT_WEIGHT = 0.2  # of the cost, for a division in which nothing that runs could stay


def divided(problem: Problem) -> Division | None:
    """Returns the problem with its services divided; None where no service asks for it.

    What is left when a node is lost keeps its SLOs. Where nothing of that kind serves everything, it carries the rate.
    """
    begun = divider(problem, problem.state.running if problem.state else ())
    if begun is None:
        return None
    is_small = _is_small(problem)
    survives = any(service.availability.survive_nodes for service in begun.services.values())
    best, least = None, (True, inf)
    for keeps_slos in (True, False) if survives else (True,):
        for way in _all_ways(begun, is_small):
            division = replace(way, keeps_slos=keeps_slos).division()
            is_short, cost = _weighed(division, SMALL_WORK if is_small else 1)
            found = (is_short, cost * (1 + MISFIT_WEIGHT * division.misfit_share))
            if best is None or found < least:
                best, least = division, found
        if not least[0]:
            break
    return best


def _is_small(problem: Problem) -> bool:
    return sum(node.gpu_count for node in problem.nodes.values()) <= SMALL_GPUS


def _ways(begun: Divider) -> Iterator[Divider]:
    """Yields ways to divide a small fleet: into two or more zones, or every node by itself."""
    for turn in range(TURNS):
        for most, by_node in ((MOST_ZONES, False), (2, False), (MOST_ZONES, True)):
            yield replace(begun, most_zones=most, zone_by_node=by_node, turn=turn)


def _all_ways(begun: Divider, is_small: bool) -> Iterator[Divider]:
    """Yields ways to divide services for availability, and ways to mix variants, by what runs and by estimate."""
    if begun.services or begun.mixes or not begun.mixable:
        yield from _ways(begun) if is_small and begun.services else (begun,)
    if begun.mixable and begun.asked is not None:
        yield begun.mixed({})
        cheapest = cheapest_mixes(begun.asked, begun.mixable)
        if cheapest:
            yield begun.mixed(cheapest)


def is_served(problem: Problem) -> bool:
    """Tells if a quick search finds a plan that serves everything by the rules, which do not ask for SLOs in a loss."""
    begun = divider(problem, problem.state.running if problem.state else ())
    if begun is None:
        return True
    begun = replace(begun, keeps_slos=False)
    is_small = _is_small(problem)
    work = SMALL_WORK if is_small else 1
    divisions = (way.division() for way in (_ways(begun) if is_small else (begun,)))
    return any(not division.impossible and not _weighed(division, work)[0] for division in divisions)


def _weighed(division: Division, work: int) -> tuple[bool, float]:
    """Returns whether anything is left unserved, and about what the plan of a division costs."""
    missed = [division.whole.services[name] for name in division.impossible]
    price = division.whole.policy.unserved_price
    beside = sum(
        price * service.priority / 100 * service.unserved_weight * max(service.rate_per_second, 1.0)
        for service in missed
    )
    best = (True, inf)
    for draft in drafts(prepare(tables(division.problem)), 0):
        if draft.method:
            best = min(best, (bool(missed) or not draft.ends_the_beginning, draft.cost + beside))
        if draft.work >= (work if not best[0] else max(work, MOST_WORK)):
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
