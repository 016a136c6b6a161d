"""Chooses the division of a problem's services: one that serves everything, and by the least cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from solvers.planning.drafting.drafts import SearchDraft, drafts, prepare
from solvers.planning.judge import judge_services
from solvers.planning.parts.divide import MOST_ZONES, Divider, divider
from solvers.planning.parts.division import Division
from solvers.planning.parts.join import join_parts
from solvers.planning.parts.mixes import cheapest_mixes
from solvers.planning.plan import Plan, ServicePlan, Unserved
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances
from solvers.planning.search.tables import Tables, tables

SMALL_GPUS = 32  # of a fleet: as many are divided in several ways
TURNS = 3
SMALL_WORK = 4  # steps of the search, by which divisions of a small fleet are compared
MOST_WORK = 16  # of them where the first leaves something unserved
HALVINGS = 6  # of the rates of mixed services, where the fleet cannot carry them
MISFIT_WEIGHT = 0.2  # of the cost, for a division in which nothing that runs could stay


@dataclass(frozen=True, slots=True, order=True)
class _Worth:
    """The result of a quick search for the plan of a division: less is better."""

    is_short: bool  # something is left unserved
    lacks_parts: bool  # of mixed services: how much of the other part counts is known only at the end of a search
    cost: float


NOTHING_FOUND = _Worth(is_short=True, lacks_parts=True, cost=inf)


def divide_services(problem: Problem) -> Division | None:
    """Returns the problem with its services divided; None where no service asks for it.

    What is left when a node is lost keeps its SLOs. Where nothing of that kind serves everything, it carries the rate.
    """
    begun = divider(problem, problem.state.running if problem.state else ())
    if begun is None:
        return None
    is_small = _is_small(problem)
    work = SMALL_WORK if is_small else 1
    survives = any(service.availability.survive_nodes for service in begun.services.values())
    best, least = None, NOTHING_FOUND
    for keeps_slos in (True, False) if survives else (True,):
        begun = replace(begun, keeps_slos=keeps_slos)
        for way in _all_ways(begun, is_small):
            division = way.division()
            found = _weigh(division, work)
            if best is None or found < least:
                best, least = division, found
        if not least.is_short:
            break
    for found, division in _partly(begun, work) if least.is_short else ():
        if found < least:
            best, least = division, found
    return best


def _is_small(problem: Problem) -> bool:
    return sum(node.gpu_count for node in problem.nodes.values()) <= SMALL_GPUS


def _ways(begun: Divider) -> Iterator[Divider]:
    """Yields ways to divide a small fleet: into two or more zones, or every node by itself."""
    for turn in range(TURNS):
        for most, by_node in ((MOST_ZONES, False), (2, False), (MOST_ZONES, True)):
            yield replace(begun, most_zones=most, zone_by_node=by_node, turn=turn)


def _all_ways(begun: Divider, is_small: bool) -> Iterator[Divider]:
    """Yields ways to divide services for availability, and ways to mix variants, by what runs and by estimate.

    In a large fleet shares of GPUs are worth what they cost; in a small one, quick searches tell more than estimates.
    """
    if begun.services or begun.mixes or not begun.mixable:
        yield from _ways(begun) if is_small and begun.services else (begun,)
    if begun.mixable and begun.asked is not None:
        tried = [cheapest_mixes(begun.asked, begun.mixable, alone=False)]
        if is_small:
            tried += [{}, cheapest_mixes(begun.asked, begun.mixable, alone=True)]
        yield from (begun.mixed(mixes) for number, mixes in enumerate(tried) if mixes not in tried[:number])


def _partly(begun: Divider, work: int) -> Iterator[tuple[_Worth, Division]]:
    """Yields divisions in which mixed services have smaller rates, halving what is left until both parts fit."""
    if not begun.mixable or begun.asked is None:
        return
    for alone in (False, True):
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            served = (low + high) / 2
            rates = {name: begun.asked.services[name].rate_per_second * served for name in begun.mixable}
            mixes = cheapest_mixes(begun.asked.change_rates(rates), begun.mixable, alone=alone)
            division = begun.mixed({name: replace(mix, served=served) for name, mix in mixes.items()}).division()
            found = _weigh(division, work)
            yield found, division
            low, high = (served, high) if not found.lacks_parts else (low, served)


def is_served(problem: Problem) -> bool:
    """Returns whether a quick search finds a plan that serves everything; in a loss the rules ask for no SLOs."""
    begun = divider(problem, problem.state.running if problem.state else ())
    if begun is None:
        return True
    begun = replace(begun, keeps_slos=False)
    is_small = _is_small(problem)
    work = SMALL_WORK if is_small else 1
    divisions = (way.division() for way in (_ways(begun) if is_small else (begun,)))
    return any(not division.impossible and not _weigh(division, work).is_short for division in divisions)


def _weigh(division: Division, work: int) -> _Worth:
    """Returns about what the plan of a division costs; more where nothing that runs could stay."""
    beside = _price_of(division.whole, division.unserved())
    misfit = 1 + MISFIT_WEIGHT * division.misfit_share
    t, best = tables(division.problem), NOTHING_FOUND
    for draft in drafts(prepare(t), 0):
        if draft.method:
            is_short, cost, missed = not draft.ends_the_beginning, draft.cost + beside, 0
            if division.mixed and (is_short or division.is_part_of_rates):
                more, missed = _lost_by_mixing(division, t, draft)
                is_short, cost = is_short or division.is_part_of_rates, cost + more
                best = NOTHING_FOUND  # the search goes by what parts cost: its last draft counts
            best = min(best, _Worth(bool(division.impossible) or is_short, missed > 0, cost * misfit))
        if draft.work >= (work if not best.is_short else max(work, MOST_WORK)):
            break
    return best


def _lost_by_mixing(division: Division, t: Tables, draft: SearchDraft) -> tuple[float, int]:
    """Returns the price of what mixed services lack beyond what their parts lack, and how many parts lack something.

    Where a part lacks accurate instances, the other one must serve less, too.
    """
    parts = {part.name for name in division.mixed for part in division.parts[name]}
    services = ServicePlan(*instances(t, draft.placed), "")
    lacking = [entry for entry in services.unserved if entry.service in parts]
    whole = [entry for entry in join_parts(division, services).unserved if entry.service in division.mixed]
    return _price_of(division.whole, whole) - _price_of(division.problem, lacking), len(lacking)


def _price_of(problem: Problem, unserved: Iterable[Unserved]) -> float:
    price = problem.policy.price_unserved
    return sum(price(problem.services[entry.service]) * max(entry.rate_per_second, 1.0) for entry in unserved)


def divide_as(problem: Problem, plan: Plan) -> Division | None:
    """Returns the problem with its services divided as this plan serves them."""
    begun = divider(problem, plan.instances)
    if begun is None:
        return None
    choices: Iterator[Division] = (replace(begun, keeps_slos=keeps).division() for keeps in (True, False))
    for division in choices:
        if judge_services(division.problem, division.split_plan(plan), keep).is_right:
            break
    return division
