"""Puts the answer of InSS's problem on the GPUs of a fleet, where possible on those that run the same services."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from solvers.inss.fleet.parts import FleetLayout
from solvers.inss.throughput import Answer, ServedModel
from solvers.planning.fleet.offers import FleetShape, GpuPool
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Instance, Place, Profile, Service

NumberedGpu = tuple[str, int]  # a GPU as the answer names it


def seat_answer(layout: FleetLayout, answer: Answer, running: Sequence[Instance]) -> tuple[list[Instance], list[str]]:
    """Returns the instances of the answer, and the services of parts for which a rule leaves no room.

    InSS knows SMs and memory alone. Where watts, cores or limits forbid an instance, it gets fewer SMs, or is left out.
    """
    problem = layout.problem
    place_of = _match(layout, answer, running)
    known: dict[tuple[str, Place], list[str]] = defaultdict(list)
    for line in running:
        known[line.service, line.place].append(line.id)
    rooms = layout.rooms.copy()
    found: list[Instance] = []
    without: list[str] = []
    ranked = sorted(answer.items(), key=lambda entry: (-problem.services[_service(entry[0])].priority, entry[0]))
    for part, served in ranked:
        service = problem.services[_service(part)]
        place = place_of[served.gpu_type, served.gpu]
        shape = next(
            (shape for shape in _shapes(layout, served, service) if rooms.can_hold(place, shape, service)), None
        )
        if shape is None:
            without.append(service.name)
            continue
        rooms.put_on(place, shape, service)
        own = known[service.name, place]
        name = own.pop() if own else rooms.names.at(service.name, place)
        found.append(
            Instance(
                name, service.name, *place, shape.variant,
                shape.batch, 0.0, shape.sm_percent, shape.memory_gib, problem.type_of(place[0]).top_clock_mhz, 0.0,
            )
        )  # fmt: skip
    return found, without


def _service(part: str) -> str:
    return part.rsplit(" ", 1)[0]


def _shapes(layout: FleetLayout, served: ServedModel, service: Service) -> Iterable[FleetShape]:
    """Yields the chosen shape, within the profiled SM%, then the same with fewer SMs."""
    pool, speeds = layout.pools[served.gpu_type], layout.speeds[service.name]
    profile = speeds.profiles[pool]
    curve = profile.latency_ms[served.batch]
    least, most = curve[0][0], min(served.sm_percent, curve[-1][0])
    yield _shape(pool, profile, service, served.batch, most)
    for sm_percent in range(most - 10, least - 1, -10):
        yield _shape(pool, profile, service, served.batch, sm_percent)


def _shape(pool: GpuPool, profile: Profile, service: Service, batch: int, sm_percent: int) -> FleetShape:
    exec_ms = value_at(profile.latency_ms[batch], sm_percent)
    share = 1.0 if service.is_dedicated else sm_percent / 100
    return FleetShape.of(pool, profile, batch, sm_percent, exec_ms, 0.0, share)


def _match(layout: FleetLayout, answer: Answer, running: Sequence[Instance]) -> Mapping[NumberedGpu, Place]:
    """Gives each GPU of the answer a real one of its pool: those with most services in common first."""
    key_of = {place: key for key, places in layout.places.items() for place in places}
    running_at: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for line in running:
        if line.place in key_of:
            running_at[key_of[line.place], line.service].append(line.place)
    shared: dict[tuple[NumberedGpu, Place], int] = defaultdict(int)
    for part, served in answer.items():
        for place in running_at[served.gpu_type, _service(part)]:
            shared[(served.gpu_type, served.gpu), place] += 1
    found: dict[NumberedGpu, Place] = {}
    taken: set[Place] = set()
    for (gpu, place), _ in sorted(shared.items(), key=lambda entry: (-entry[1], entry[0])):
        if gpu not in found and place not in taken:
            found[gpu] = place
            taken.add(place)
    free = {key: iter([place for place in places if place not in taken]) for key, places in layout.places.items()}
    for gpu in sorted({(served.gpu_type, served.gpu) for served in answer.values()} - set(found)):
        found[gpu] = next(free[gpu[0]])
    return found
