"""A GPU for each instance, of the type on which its service costs least; nothing is shared.

Where GPUs of that type run out, the next cheapest type carries the rest. A service of the highest priority comes first.
Against `hpa-cheapest`, which adds and stops instances by their usage, it looks at the price of the whole service, and
plans as if nothing ran.
"""

from __future__ import annotations

from collections.abc import Sequence

from solvers.baselines.whole.seats import ROUNDING_SHARE, WholeFleet, count_needed, sort_by_priority
from solvers.planning.fleet.offers import FleetShape
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Problem, Service


def plan_one_per_gpu(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns the plan; it depends on the rates, and keeps what runs on a GPU of the same type."""
    return seat_all(problem).draft("one instance a GPU, each service on its cheapest type")


def seat_all(problem: Problem) -> WholeFleet:
    """Places all services on their cheapest types."""
    fleet = WholeFleet(problem)
    for service in sort_by_priority(problem):
        _seat(fleet, service, fleet.shapes(service))
    return fleet


def _seat(fleet: WholeFleet, service: Service, shapes: Sequence[FleetShape]) -> None:
    rest, lacking = service.rate_per_second, service.min_instances
    left = list(shapes)
    while left and (rest > ROUNDING_SHARE * service.rate_per_second or lacking > 0):
        counts = [(max(count_needed(service, shape, rest), lacking), shape) for shape in left]
        count, shape = min(counts, key=lambda found: (found[0] * found[1].pool.price_per_hour, found[1].pool.gpu_type))
        left.remove(shape)
        placed = fleet.seat(service, shape, count)
        rest, lacking = max(0.0, rest - placed * shape.rate_per_second), lacking - placed
