"""Kubernetes with GPUs in two time slices each, on nodes that Karpenter rents: what many teams have today.

A pod asks for a slice or for a whole GPU. Each service is on the type on which its load costs least, by slices or by
GPUs; pods fill the cheapest GPUs first, two slices of any services on one. What neighbours slow is made up for by more
pods, as an autoscaler does. Ours, in its favour: a slice is half of the SMs, as if the other half never took more; two
slices are put together only where memory and the policy's limits allow it; and what runs in the same shape stays.
"""

from __future__ import annotations

from solvers.baselines.whole.seats import ROUNDING_SHARE, WholeFleet, count_needed, sort_by_priority
from solvers.planning.fleet.offers import FleetShape, read_offers
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Problem, Service

SLICE_PERCENT = 50  # of a GPU: two replicas in the device plugin's sharing.timeSlicing
MOST_ROUNDS = 20  # of more pods for what neighbours have slowed


def plan_time_sliced(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns the plan; it depends on the rates, and keeps what runs in the same shape where it is."""
    fleet = WholeFleet(problem)
    for service in sort_by_priority(problem):
        _seat(fleet, service, service.rate_per_second, service.min_instances)
    for _ in range(MOST_ROUNDS):
        missing = fleet.find_missing()
        before = len(fleet.seats)
        for name, rate in missing.items():
            _seat(fleet, problem.services[name], rate, 1)
        if len(fleet.seats) == before:
            break
    return fleet.draft("two time slices a GPU, each service on its cheapest type")


def _seat(fleet: WholeFleet, service: Service, rate: float, least: int) -> None:
    """Adds pods for this rate, at least so many: on the cheapest type, else the next one."""
    rest, lacking = rate, least
    left = _list_shapes(fleet, service)
    while left and (rest > ROUNDING_SHARE * service.rate_per_second or lacking > 0):
        counts = [(max(count_needed(service, shape, rest), lacking), shape) for shape in left]
        count, shape = min(counts, key=lambda found: (found[0] * _price(found[1]), found[1].sm_percent))
        left.remove(shape)
        placed = fleet.seat(service, shape, count, shares=shape.sm_percent == SLICE_PERCENT)
        rest, lacking = max(0.0, rest - placed * shape.rate_per_second), lacking - placed


def _list_shapes(fleet: WholeFleet, service: Service) -> list[FleetShape]:
    """Returns for each pool a slice and a whole GPU, where the SLO holds in it."""
    slices = read_offers(fleet.problem).find_best_shapes(fleet.narrow_variants(service), fleet.rooms.pools)
    halves = [shape for shape in slices if shape.sm_percent == SLICE_PERCENT and not service.is_dedicated]
    return halves + fleet.shapes(service)


def _price(shape: FleetShape) -> float:
    return shape.pool.price_per_hour * (0.5 if shape.sm_percent == SLICE_PERCENT else 1.0)
