"""Kubernetes as HetSev compares itself with it: a whole GPU for each instance, scaled by usage.

Numbers follow the horizontal pod autoscaler: usage above or below 80 % by more than a tenth changes them in proportion,
up by at most a doubling or four pods, down only to the largest number of the last five minutes. Kubernetes takes any
free GPU, so the type is random; `plan_cheapest` is the same autoscaler with the type on which the load costs least.
Ours, in favour of both: usage is of the rate that keeps the SLO, and gateways divide a rate by what instances carry.

Plans each service by itself, in the order of names; what finds no free GPU waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from random import Random
from typing import TypeAlias

from solvers.planning.carried import accepted_rates, admitted, carry
from solvers.planning.fleet.offers import FleetShape, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, Place, PlacedJob, Problem, Service

TOLERANCE_SHARE = 0.1
STABLE_SECONDS = 300.0
MOST_ADDED_PODS, MOST_ADDED_FACTOR = 4, 2
ScaleWishes: TypeAlias = list[tuple[float, int]]  # a moment, and the number that was enough then
ChosenGpu: TypeAlias = tuple[FleetShape, Place]
ChooseGpu: TypeAlias = Callable[[Sequence[ChosenGpu], Random], ChosenGpu]


def plan_random(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns the next plan of an autoscaler that takes any free GPU."""
    return _plan(problem, knowledge, budget, lambda able, random: random.choice(able), "random types")


def plan_cheapest(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns the next plan of one that takes the free GPU of the lowest price for the rate it carries."""

    def cheapest(able: Sequence[ChosenGpu], random: Random) -> ChosenGpu:
        return min(able, key=lambda found: found[0].pool.price_per_hour / found[0].rate_per_second)

    return _plan(problem, knowledge, budget, cheapest, "the cheapest type")


def _plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget, choose: ChooseGpu, which: str) -> PlannerDraft:
    state = problem.state
    now = state.now.timestamp() if state and state.now else None
    random = Random(f"{budget.seed} {now}")  # noqa: S311 (a simulation of chance, not a secret)
    jobs: Sequence[PlacedJob] = state.jobs if state else ()
    running = admitted(problem, state.running, state.jobs) if state else []
    rooms = FleetRooms(problem, running, jobs)
    known: Mapping[str, ScaleWishes] = knowledge.get("wishes", {})
    wishes: dict[str, ScaleWishes] = {}
    seats: list[Instance] = []
    for name, service in sorted(problem.services.items()):
        own = [line for line in running if line.service == name]
        start = partial(_start, problem, service, rooms, random, choose)
        if own:
            rates = accepted_rates(problem, own)
            wanted, wishes[name] = _number(service, rates, known.get(name, []), now)
            own = random.sample(own, wanted) if wanted < len(own) else own
            seats += own + start(wanted - len(own))
        else:
            seats += start(None)
    instances, rests = carry(problem, seats, jobs)
    unserved = tuple(
        Unserved(name, rate, rooms.why_no_gpu(problem.services[name]) or "not scaled up yet")
        for name, rate in sorted(rests.items())
    )
    return PlannerDraft(tuple(instances), unserved, f"usage of 80 %, {which}", {"wishes": wishes})


def _is_short(problem: Problem, service: Service, made: Sequence[Instance]) -> bool:
    return len(made) < service.min_instances or sum(accepted_rates(problem, made)) < service.rate_per_second


def _number(
    service: Service, rates: Sequence[float], known: Sequence[Sequence[float]], now: float | None
) -> tuple[int, ScaleWishes]:
    """Returns the number of instances to run, and the recent wishes that the next plan needs.

    A rate is what an instance carries at the target of 80 %, so usage is the load by their sum.
    """
    least, running = max(1, service.min_instances), len(rates)
    usage = service.rate_per_second / sum(rates) if sum(rates) else MOST_ADDED_FACTOR
    wish = max(least, running if abs(usage - 1) <= TOLERANCE_SHARE else ceil(running * usage - 1e-9))
    if now is None:
        return wish, []
    recent = [(float(at), int(number)) for at, number in known if at > now - STABLE_SECONDS] + [(now, wish)]
    wanted = wish if wish >= running else min(running, max(number for _, number in recent))
    return min(wanted, max(MOST_ADDED_FACTOR * running, running + MOST_ADDED_PODS)), recent


def _start(
    problem: Problem, service: Service, rooms: FleetRooms, random: Random, choose: ChooseGpu, count: int | None
) -> list[Instance]:
    """Starts `count` instances on idle GPUs, without a count as many as the rate needs; fewer if GPUs run out."""
    shapes, found = read_offers(problem).find_whole_shapes(service, rooms.pools), list[Instance]()
    while len(found) < count if count is not None else _is_short(problem, service, found):
        able = [(shape, place) for shape in shapes for place in rooms.idle_places(shape, service)]
        if not able:
            break
        shape, place = choose(able, random)
        found.append(rooms.start_on(place, shape, service))
    return found
