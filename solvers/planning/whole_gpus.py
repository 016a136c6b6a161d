"""Finds the shape of an instance that has a whole GPU, for each pool of a fleet."""

from __future__ import annotations

from solvers.latency import max_rate
from solvers.planning.judge.tolerances import at_most
from solvers.planning.problem import Instance, Place, Problem, Profile, Service
from solvers.planning.rooms import FleetRooms, FleetShape, GpuPool
from solvers.planning.runnable import runnable_profiles, why_no_shape


def whole_gpu_shapes(problem: Problem, service: Service, pools: list[GpuPool]) -> list[FleetShape]:
    """Returns for each pool the variant and batch that carry most within the SLO; pools without any are left out."""
    found = []
    for pool in pools:
        shapes = [
            _shape(problem, service, profile, batch, pool)
            for profile in runnable_profiles(problem, service, pool)
            for batch in profile.latency_ms
        ]
        kind = pool.type_in(problem)
        fitting = [
            shape
            for shape in shapes
            if at_most(kind.idle_w + shape.top_w, kind.max_w) and at_most(shape.memory_gib, kind.memory_gib)
        ]
        best = max(fitting or shapes, key=lambda shape: shape.rate_per_second, default=None)
        if best is not None and best.rate_per_second > 0:
            found.append(best)
    return found


def start_on(place: Place, shape: FleetShape, service: Service, rooms: FleetRooms) -> Instance:
    """Places a new instance on this idle GPU, at its highest clock and without a rate yet."""
    rooms.put_on(place, shape, service)
    return Instance(
        rooms.names.at(service.name, place), service.name, *place, shape.variant, shape.batch, 0.0,
        shape.sm_percent, shape.memory_gib, rooms.problem.type_of(place[0]).top_clock_mhz, 0.0,
    )  # fmt: skip


def why_no_gpu(problem: Problem, service: Service, rooms: FleetRooms) -> str:
    """Names what keeps another instance with a GPU of its own off the fleet; empty where nothing does."""
    shapes = whole_gpu_shapes(problem, service, rooms.pools)
    if not shapes:
        return why_no_shape(problem)
    if any(rooms.idle_places(shape, service) for shape in shapes):
        return ""
    if not rooms.has_idle:
        return "each instance needs a GPU of its own, and all are in use"
    return rooms.why_not(shapes[0], service)


def _shape(problem: Problem, service: Service, profile: Profile, batch: int, pool: GpuPool) -> FleetShape:
    demand = profile.demand
    sm_percent, exec_ms = profile.latency_ms[batch][-1]
    judged_ms = exec_ms * (1 + problem.policy.exec_margin)
    most, _ = max_rate(batch, judged_ms, service.slo_ms, service.percentile, service.variation)
    return FleetShape(
        pool, profile.variant, batch, sm_percent, profile.memory_gib[batch], demand.pressure[-1][1],
        demand.power_w[-1][1], demand.cpu_cores, demand.host_memory_gib, exec_ms, profile.start_seconds,
        min(most, problem.policy.utilization * batch * 1000 / exec_ms), 1.0,
    )  # fmt: skip
