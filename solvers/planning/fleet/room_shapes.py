"""Tabulates what an instance of a service may carry in every shape on each GPU of a view, next to what runs there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solvers.latency.kernels import BUSY_POINTS
from solvers.latency.rates import none_left
from solvers.planning.fleet.grids import ROUNDING, SM, Floats, Ints, ProfileGrid, read_grid, read_loads
from solvers.planning.fleet.kernels import caps
from solvers.planning.fleet.predictions import predict_with_exec
from solvers.planning.fleet.room_view import RoomView
from solvers.planning.problem import Instance, Node, Place, Policy, Profile, Service

WAY_STEPS = 500  # of work for a profile at a clock, besides those for its shapes


@dataclass(frozen=True, slots=True)
class Way:
    """A profile at a clock."""

    profile: Profile
    at: ProfileGrid
    clock_mhz: float
    ratio: float  # highest clock / clock


@dataclass(frozen=True)
class RoomShapes:
    """Shapes by row and SM%: a row is a way of running on a GPU. GPUs without any have no row."""

    view: RoomView
    gpu: Ints  # [row] -> row of the view
    way: Ints  # [row]
    ways: tuple[Way, ...]
    cap: Floats  # [row, SM%], 0 where it does not fit
    by: Ints  # index of the batch
    exec_ms: Floats

    @cached_property
    def rows_of(self) -> dict[int, Ints]:
        """Returns the rows of each GPU."""
        starts = [0, *(np.flatnonzero(self.gpu[1:] != self.gpu[:-1]) + 1).tolist()] if len(self.gpu) else []
        ends = [*starts[1:], len(self.gpu)]
        return {int(self.gpu[start]): np.arange(start, end) for start, end in zip(starts, ends, strict=True)}

    @cached_property
    def least_sm(self) -> dict[int, int]:
        """Returns the least SM% with which a GPU carries anything."""
        least = (self.cap > 0).argmax(axis=1)
        return {gpu: int(least[rows].min()) for gpu, rows in self.rows_of.items()}

    @cached_property
    def least_w(self) -> dict[int, float]:
        """Returns the least watts with which a GPU carries anything."""
        least = np.where(self.cap > 0, self.busy_w, np.inf).min(axis=1)
        return {gpu: float(least[rows].min()) for gpu, rows in self.rows_of.items()}

    @cached_property
    def busy_w(self) -> Floats:
        """Returns the mean watts above idle of each shape at full load."""
        watts = np.zeros_like(self.cap)
        for number, way in enumerate(self.ways):
            rows = self.way == number
            batch = way.at.batches[self.by[rows]]
            load = np.minimum(self.cap[rows] * self.exec_ms[rows] / batch / 1000, 1.0)
            place = load * (BUSY_POINTS - 1)
            cell = np.minimum(place.astype(np.int64), BUSY_POINTS - 2)
            chances = none_left()
            low = chances[batch, cell]
            none = low + (chances[batch, cell + 1] - low) * (place - cell)
            each = np.maximum(load * batch, 1e-300)
            busy = np.where(load <= 0, 0.0, np.where(load >= 1, 1.0, 1 / (1 + none * np.exp(-each) / each)))
            watts[rows] = busy * (way.at.power_w * way.ratio**-way.profile.demand.power_exponent)
        return watts

    def start(
        self, name: str, place: Place, row: int, sm_percent: int, rate_per_second: float, service: Service,
        policy: Policy,
    ) -> Instance | None:  # fmt: skip
        """Returns an instance of this shape at this rate; None if no batch timeout keeps its SLO."""
        way = self.ways[self.way[row]]
        profile, batch = way.profile, int(way.at.batches[self.by[row, sm_percent]])
        instance = Instance(
            name, service.name, *place, profile.variant, batch, 0.0, sm_percent, profile.memory_gib[batch],
            way.clock_mhz, rate_per_second,
        )  # fmt: skip
        return predict_with_exec(instance, float(self.exec_ms[row, sm_percent]), service, policy)


def tabulate(
    view: RoomView,
    rows: Iterable[int],
    find_profiles: Callable[[Node], Iterable[Profile]],
    service: Service,
    policy: Policy,
    spend: Callable[[int], None],
) -> RoomShapes:
    """Returns the shapes of these profiles that SLO, room and neighbours allow on these rows."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for row in rows:
        node, clock_mhz = view.nodes[row], 0.0 if view.is_idle[row] else view.clocks_mhz[row][0]
        alike[node.gpu_type, node.templates, node.cell, clock_mhz].append(row)
    ways: list[Way] = []
    empty, none = np.zeros((0, SM)), np.zeros(0, dtype=np.int64)
    parts = [(none, none, empty, empty.astype(np.int64), empty)]
    for members in alike.values():
        which = np.array(members, dtype=np.int64)
        for way in list_ways(view, members[0], find_profiles(view.nodes[members[0]])):
            most, batch, time, looked = find_caps(view, which, way, service, policy)
            spend(looked + WAY_STEPS)
            useful = most.any(axis=1)
            numbers = np.full(int(useful.sum()), len(ways), dtype=np.int64)
            parts.append((which[useful], numbers, most[useful] * ROUNDING, batch[useful], time[useful]))
            ways.append(way)
    gpu, way_of, cap, by, exec_ms = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(gpu, kind="stable")
    return RoomShapes(view, gpu[order], way_of[order], tuple(ways), cap[order], by[order], exec_ms[order])


def find_caps(
    view: RoomView, rows: Ints, way: Way, service: Service, policy: Policy, least_sm: int = 1
) -> tuple[Floats, Ints, Floats, int]:  # fmt: skip
    """Returns what an instance carries on these rows from an SM% on, its batch, their exec, and the steps of work."""
    demand, size = way.profile.demand, (len(rows), SM)
    most, batch, time = np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size)
    looked = caps(
        rows, view.sm_percent, view.memory_gib, view.watts, view.pressure, view.first, view.neighbours,
        way.at.exec_ms, way.at.memory_gib, way.at.batches, read_loads(service, policy, way.at.batches),
        way.at.pressure, way.at.power_w, demand.sensitivity, way.ratio**demand.clock_exponent,
        way.ratio**-demand.power_exponent, service.slo_ms, 1 + policy.exec_margin, policy.utilization,
        policy.share_pressure if policy.pricing == "share" else 0.0, least_sm, most, batch, time,
    )  # fmt: skip
    return most, batch, time, looked


def list_ways(view: RoomView, row: int, profiles: Iterable[Profile]) -> list[Way]:
    """Returns each profile at each clock that an instance may have there."""
    top_mhz = view.types[row].top_clock_mhz
    return [
        Way(profile, read_grid(profile), clock_mhz, top_mhz / clock_mhz)
        for profile in profiles
        for clock_mhz in view.clocks_mhz[row]
    ]
