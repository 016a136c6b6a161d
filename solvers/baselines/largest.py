"""Every instance on the largest GPU type: what a team does that buys one kind of GPU for everything.

A service runs on the type with most memory of those that it may run on, and on no other. Its instances have the shape
of which the least share of GPUs carries its load: beside neighbours, where its part of what presses on a GPU counts as
well, or with a whole GPU. They share GPUs by first fit, the largest first.

Packs each service on GPUs of the largest type that it may run on; what finds no room there waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from solvers.planning.carried import admitted, carry
from solvers.planning.fleet.offers import SHARED_PRESSURE, FleetShape, read_offers, why_no_shape
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.pressures import add_parts
from solvers.planning.problem import Instance, Knowledge, Problem, Service

EXACTLY = 1e-6  # of a rate
NOT_CARRIED = "its instances do not carry it beside their neighbours"


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns the plan; it depends on the rates, and keeps what runs in the same shape where it is."""
    state = problem.state
    staying = [job for job in (state.jobs if state else ()) if not problem.jobs[job.job].is_preemptible]
    rooms = FleetRooms(problem, (), staying, SHARED_PRESSURE)
    chosen = {
        name: shapes for name, service in problem.services.items() if (shapes := _smallest(problem, service, rooms))
    }
    running: dict[str, list[Instance]] = defaultdict(list)
    for line in admitted(problem, state.running, state.jobs) if state else ():
        running[line.service].append(line)
    seats: list[Instance] = []
    for name in sorted(chosen, key=lambda name: (-chosen[name][0].share, name)):
        seats += _seat(rooms, problem.services[name], chosen[name], running[name])
    instances, rests = carry(problem, seats, staying)
    unserved = tuple(Unserved(name, rate, _why(problem, name, chosen, rooms)) for name, rate in sorted(rests.items()))
    return PlannerDraft(tuple(instances), unserved, "everything on the largest type, first fit")


def _smallest(problem: Problem, service: Service, rooms: FleetRooms) -> list[FleetShape]:
    """Returns the shape on the largest type of which the least share carries the load, in each pool of this type.

    It is empty where no type keeps the service's SLO.
    """
    known = {variant.name: variant.accuracy for variant in problem.models[service.model]}
    able = replace(
        service, variants=tuple(name for name in service.variants if known.get(name, 0.0) >= service.mean_accuracy)
    )
    offers = read_offers(problem)
    alone = offers.find_whole_shapes(able, rooms.pools)
    shapes = offers.find_knee_shapes(able, rooms.pools) + alone
    if not shapes:
        return []

    def size(shape: FleetShape) -> tuple[float, float, str]:
        return problem.gpu_types[shape.pool.gpu_type].memory_gib, shape.pool.price_per_hour, shape.pool.gpu_type

    def cost(shape: FleetShape) -> tuple[float, int, int, str]:
        part = 1.0 if shape in alone else max(shape.share, add_parts(shape.pressure) / SHARED_PRESSURE)
        return _count_needed(service, shape) * part, shape.sm_percent, shape.batch, shape.variant

    largest = max(shapes, key=size).pool.gpu_type
    there = [shape for shape in shapes if shape.pool.gpu_type == largest]
    least = min(map(cost, there))
    return sorted((shape for shape in there if cost(shape) == least), key=lambda shape: shape.pool.price_per_hour)


def _count_needed(service: Service, shape: FleetShape) -> int:
    return max(1, service.min_instances, ceil(service.rate_per_second / shape.rate_per_second * (1 - EXACTLY)))


def _seat(
    rooms: FleetRooms, service: Service, shapes: Sequence[FleetShape], running: Sequence[Instance]
) -> list[Instance]:
    """Places the instances of a service: first where they run now, then by first fit, the cheapest pool first."""
    wanted, in_pool = _count_needed(service, shapes[0]), {shape.pool: shape for shape in shapes}
    found: list[Instance] = []
    for line in running:
        shape = in_pool.get(rooms.pool_of(line.place))
        if len(found) < wanted and shape and _is_same(line, shape) and rooms.can_hold(line.place, shape, service):
            rooms.put_on(line.place, shape, service)
            found.append(replace(line, memory_gib=shape.memory_gib, clock_mhz=rooms.clock_mhz(line.place)))
    for shape in shapes:
        while len(found) < wanted and (place := rooms.first_place(shape, service)):
            rooms.put_on(place, shape, service)
            found.append(
                Instance(
                    rooms.names.numbered(service.name), service.name, *place, shape.variant, shape.batch, 0.0,
                    shape.sm_percent, shape.memory_gib, rooms.clock_mhz(place), 0.0,
                )
            )  # fmt: skip
    return found


def _is_same(line: Instance, shape: FleetShape) -> bool:
    return (line.variant, line.batch, line.sm_percent) == (shape.variant, shape.batch, shape.sm_percent)


def _why(problem: Problem, name: str, chosen: Mapping[str, Sequence[FleetShape]], rooms: FleetRooms) -> str:
    if name not in chosen:
        return why_no_shape(problem)
    service, shapes = problem.services[name], chosen[name]
    if any(rooms.room_for(shape, service) for shape in shapes):
        return NOT_CARRIED
    return rooms.why_not(shapes[0], service)
