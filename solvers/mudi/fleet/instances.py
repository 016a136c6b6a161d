"""Decides how many instances a service has: a GPU for each, as Mudi's services have.

Mudi's paper deploys one instance of a service on each GPU and never changes their number. Ours: another one starts on
the idle GPU of the lowest price for its rate once whole GPUs could not carry the load, and the dearest stops once the
others could carry a quarter more. An instance beside another service, as another planner leaves it, gives way to one on
an idle GPU, where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from solvers.planning.carried import spread_rate
from solvers.planning.offers import FleetShape, read_offers
from solvers.planning.problem import Instance, Problem, Service
from solvers.planning.rooms import FleetRooms
from solvers.planning.stopping import spare_instances

USED_SHARE = 0.999  # of what a whole GPU carries


def instances_with_rates(
    problem: Problem, service: Service, own: Sequence[Instance], beside: Sequence[Instance], rooms: FleetRooms
) -> list[tuple[Instance, float]]:
    """Returns the instances of a service, each with its part of the rate.

    Those that run `beside` another service stay only where no GPU is idle.
    """
    offered = read_offers(problem).find_whole_shapes(service, rooms.pools)
    shapes = {(shape.pool.gpu_type, shape.variant): shape for shape in offered}
    seats = [(seat, _whole_rate(problem, shapes, seat)) for seat in own]
    seats = _without_spare(problem, service, [(seat, most) for seat, most in seats if most > 0])
    left = [(seat, most) for seat in beside if (most := _whole_rate(problem, shapes, seat)) > 0]
    while len(seats) < service.min_instances or sum(most for _, most in seats) < service.rate_per_second:
        found = _start(service, list(shapes.values()), rooms) or (left.pop(0) if left else None)
        if found is None:
            break
        seats.append(found)
    if len(seats) < max(1, service.min_instances):
        return []
    shares = spread_rate(service, [most for _, most in seats])
    return [(seat, share) for (seat, _), share in zip(seats, shares, strict=True)]


def _whole_rate(problem: Problem, shapes: dict[tuple[str, str], FleetShape], seat: Instance) -> float:
    shape = shapes.get((problem.nodes[seat.node].gpu_type, seat.variant))
    return USED_SHARE * shape.rate_per_second if shape else 0.0


def _without_spare(
    problem: Problem, service: Service, seats: list[tuple[Instance, float]]
) -> list[tuple[Instance, float]]:
    dearest = sorted(seats, key=lambda entry: (-problem.nodes[entry[0].node].price_per_hour, entry[0].id))
    gone = spare_instances(service, [(seat.id, most) for seat, most in dearest])
    return [entry for entry in seats if entry[0].id not in gone]


def _start(service: Service, shapes: Sequence[FleetShape], rooms: FleetRooms) -> tuple[Instance, float] | None:
    """Places an instance on an idle GPU, and returns it with what it carries there."""
    for shape in sorted(shapes, key=lambda shape: shape.pool.price_per_hour / shape.rate_per_second):
        if places := rooms.idle_places(shape, service):
            return rooms.start_on(places[0], shape, service), USED_SHARE * shape.rate_per_second
    return None
