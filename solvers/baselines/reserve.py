"""Reserve-and-pack (Alibaba's MLaaS, NSDI 2022): high-end GPUs for large services, all others packed elsewhere.

High-end are the GPUs of the highest price, where there are several types. Ours: a service is large if it takes half a
high-end GPU's SMs at the shape that carries most; its shape is the smallest that carries
its load, or the one that carries most; packing is best fit by SMs, without regard to what runs there.

Packs each service on the GPUs that its size may use; what finds no room there waits.
"""

from __future__ import annotations

from solvers.planning.fleet.offers import FleetShape
from solvers.planning.growing import GrowingFleet
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Place, Problem, Service

HIGH_SM_PERCENT = 50  # of a high-end GPU
MOST_ROUNDS = 200
WAITS = "waits: the GPUs that its size may use are full"


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns the next plan; it depends on what runs and on the rates alone."""
    fleet = GrowingFleet(problem)
    fleet.stop_spare(lambda seat: fleet.rates[seat.id])
    for service in sorted(problem.services.values(), key=lambda service: (-service.priority, service.name)):
        high_or_low = _list_allowed(fleet, service)
        for _ in range(MOST_ROUNDS):
            if not fleet.is_lacking(service) or not (chosen := _tightest(fleet, service, high_or_low)):
                break
            fleet.add(service, *chosen)
            fleet.count()
    return fleet.draft("high-end GPUs reserved, the others packed", WAITS)


def _list_allowed(fleet: GrowingFleet, service: Service) -> set[FleetShape]:
    """Returns the shapes on reserved GPUs for a large service, and those elsewhere for any other."""
    shapes = fleet.accurate_shapes(service)
    prices = {pool.price_per_hour for pool in fleet.rooms.pools}
    high = [shape for shape in shapes if shape.pool.price_per_hour == max(prices)]
    low = [shape for shape in shapes if shape.pool.price_per_hour < max(prices)]
    if not high or not low:
        return set(shapes)
    largest = max(high, key=lambda shape: (shape.rate_per_second, -shape.sm_percent))
    return set(high if largest.sm_percent >= HIGH_SM_PERCENT else low)


def _tightest(
    fleet: GrowingFleet, service: Service, allowed: set[FleetShape]
) -> tuple[FleetShape, Place] | None:  # fmt: skip
    """Returns the GPU with the least left after it that takes the best shape."""
    for shape in fleet.best_first(service):
        if shape in allowed and (places := fleet.rooms.places_for(shape, service)):
            return shape, max(places, key=lambda place: (fleet.rooms.used_percent(place), place))
    return None
