"""Chooses the type of one more instance by HetSev's heuristic, and its GPU by the room that is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf

import numpy as np
from numpy.typing import NDArray

from solvers.hetsev.adding.rooms import FreeRooms, GpuRoom, Seat
from solvers.hetsev.adding.shapes import (
    AddedShape,
    OfferedRoom,
    cheapest,
    least_sm,
    rates,
    smallest,
)
from solvers.hetsev.scaling import greedy
from solvers.hetsev.scaling.problem import InstanceType, ScalingProblem, ScalingPromise
from solvers.latency import timeout_for
from solvers.planning.grids import Floats, read_grid, read_loads
from solvers.planning.offers import read_offers
from solvers.planning.plan import NONE_UNSERVED_SHARE
from solvers.planning.problem import Instance, Problem, Profile, Service

LOOKS = 16  # GPUs that are paid already, and as many others, for each instance
LEAST_PART = 0.1  # of what an instance should carry: one that carries less is not worth its process
ANY_RATE = 1e-12
SAME_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class ServiceOffer:
    """The shapes of one variant of a service on a type of GPU, and what they carry alone."""

    profile: Profile
    template: str | None
    carried: Floats  # [batch, SM%], alone
    rows: Floats  # the loads that its batches accept
    least_sm: int  # below it nothing is carried


@dataclass
class Menu:
    """The shapes of one variant of a service on a type of GPU, and the GPUs that are open to it."""

    profile: Profile
    carried: Floats  # [batch, SM%], alone
    rows: Floats  # the loads that its batches accept
    gpus: NDArray[np.int64]
    need: float = 0.0  # for which `best` was found
    best: AddedShape | None = None

    def cheapest(self, service: Service, need: float, memory_gib: float) -> AddedShape | None:
        """Returns the shape of which as many as the need takes hold the least; found once for each need."""
        if need != self.need:
            self.need, self.best = need, cheapest(service, self.profile, self.carried, need, memory_gib)
        return self.best


class OfferedShapes:
    """The shapes that each service may run on idle GPUs: they depend on no rate, and are read once for each."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._known: dict[str, list[ServiceOffer]] = {}
        self.price = {
            kind: min((node.price_per_hour for node in problem.nodes.values() if node.gpu_type == kind), default=inf)
            for kind in problem.gpu_types
        }

    def read_all(self) -> None:
        for service in self._problem.services.values():
            self.of(service)

    def of(self, service: Service) -> list[ServiceOffer]:
        """Returns what the service may run, by GPU type and variant."""
        if service.name not in self._known:
            self._known[service.name] = [found for kind in self.price for found in self._on(service, kind)]
        return self._known[service.name]

    def _on(self, service: Service, gpu_type: str) -> Iterator[ServiceOffer]:
        if self.price[gpu_type] == inf or (service.gpu_types is not None and gpu_type not in service.gpu_types):
            return
        templates = read_offers(self._problem).templates
        kind, policy = self._problem.gpu_types[gpu_type], self._problem.policy
        alone = OfferedRoom(100, kind.memory_gib, 0.0, kind.max_w - kind.idle_w)
        for variant in service.variants:
            if profile := self._problem.profiles.get((service.model, variant, gpu_type)):
                carried = rates(policy, service, profile, alone)
                if carried.any():
                    # Where shares are priced, the less of a GPU is left, the faster all are.
                    least = 0 if policy.pricing == "share" else least_sm(carried, ANY_RATE)
                    rows = read_loads(service, policy, read_grid(profile).batches)
                    yield ServiceOffer(profile, templates.get((service.model, variant)), carried, rows, least)


class Placer:
    """Adds instances one by one."""

    def __init__(self, problem: Problem, rooms: FreeRooms, offered: OfferedShapes) -> None:
        self.problem, self.rooms, self.looked_at = problem, rooms, 0
        self._offered = offered
        self._taken = {line.id for line in (problem.state.running if problem.state else ())}
        self._number = {place: at for at, place in enumerate(rooms.places)}

    def add(self, service: Service, missing: float, running: int) -> list[Seat]:
        """Returns new instances for what is missing, as far as there is room."""
        added: list[Seat] = []
        wanted = service.min_instances - running  # so many at least, where there is none
        menus = self._menus(service)
        for whole in (True, False):
            open_ = list(menus)
            while missing > NONE_UNSERVED_SHARE * service.rate_per_second or (0 < len(added) < wanted):
                part = max(missing, service.rate_per_second / service.min_instances if wanted > len(added) else 0.0)
                choice = self._choice(service, part, open_)
                if choice is None:
                    break
                menu, number = choice
                seat = self._placed(service, menu, part / max(number, wanted - len(added)), whole, len(added))
                if seat is None:
                    open_.remove(menu)
                    continue
                added.append(seat)
                missing -= seat.line.rate_per_second
                last = self._number[seat.line.place]
                for other in menus:
                    other.gpus = self.rooms.still_open(service, other.gpus, last)
        return added

    def _menus(self, service: Service) -> list[Menu]:
        """Returns what the service may run, with the GPUs that are open to it."""
        is_open = self.rooms.open_to(service)
        found = []
        for each in self._offered.of(service):
            gpus = self.rooms.open_of_type(is_open, each.profile.gpu_type, each.template)
            gpus = gpus[self._able(each.profile, gpus, each.least_sm)]
            found.append(Menu(each.profile, each.carried, each.rows, gpus))
        return found

    def _choice(self, service: Service, missing: float, menus: list[Menu]) -> tuple[Menu, int] | None:
        """Returns the type of GPU, with a variant, and the number of instances that HetSev's heuristic starts."""
        kinds: dict[str, tuple[InstanceType, Menu]] = {}
        for menu in menus:
            memory_gib = self.problem.gpu_types[menu.profile.gpu_type].memory_gib
            best = menu.cheapest(service, missing, memory_gib) if len(menu.gpus) else None
            if best is None:
                continue
            share = 1.0 if service.is_dedicated else max(best.sm_percent / 100, best.memory_gib / memory_gib)
            name = f"{menu.profile.gpu_type} {menu.profile.variant}"
            kind = InstanceType(
                name=name,
                throughput_per_second=best.rate_per_second,
                exec_ms=0.0,  # every shape of a menu keeps the SLO
                gpu_memory_gib=share * memory_gib,
                price_per_gib=self._offered.price[menu.profile.gpu_type] / memory_gib,
                most=len(menu.gpus),
            )
            kinds[name] = (kind, menu)
        types = tuple(kind for kind, _ in kinds.values())
        problem = ScalingProblem(missing, ScalingPromise(service.slo_ms, service.percentile), types)
        choice = greedy.out(problem, dict.fromkeys(kinds, 0), 1.0)
        return (kinds[choice[0]][1], choice[1]) if choice else None

    def _placed(self, service: Service, menu: Menu, part: float, whole: bool, serial: int) -> Seat | None:
        """Places one instance on the first candidate that takes it; None if none does."""
        least = self._least_sm(menu.carried, part if whole else LEAST_PART * part)
        for at in self._candidates(menu, least):
            self.looked_at += 1
            room = self.rooms.room(at)
            beside = 0.0 if room.seats else float(read_grid(menu.profile).pressure[min(least, 100)])
            around = self._around(room)
            # On a GPU that it opens it leaves room for another one like itself.
            fit = partial(smallest, self.problem.policy, service, menu.profile, menu.rows, part, whole=whole)
            shape = (fit(around.with_more(beside)) if beside else None) or fit(around)
            if shape is None or shape.rate_per_second < LEAST_PART * part:
                continue
            if self.rooms.admits(service, at, shape.sm_percent) and self._neighbours_bear(room, shape):
                return self._seated(service, room, shape, serial)
        return None

    def _least_sm(self, carried: Floats, part: float) -> int:
        """Returns the least SM% that may carry this part on any GPU."""
        # Where shares are priced, the less of a GPU is left, the faster all are.
        return 0 if self.problem.policy.pricing == "share" else least_sm(carried, part)

    def _candidates(self, menu: Menu, least: int) -> list[int]:
        """Returns GPUs with room: those that are paid, the emptiest first, then the cheapest to open."""
        rooms = self.rooms
        found = menu.gpus[self._able(menu.profile, menu.gpus, least)]
        is_paid = rooms.price[found] == 0
        paid, others = found[is_paid], found[~is_paid]
        emptiest = paid[np.argsort(-rooms.sm[paid], kind="stable")][:LOOKS]
        cheapest_first = others[np.argsort(rooms.price[others], kind="stable")][:LOOKS]
        return [int(at) for at in (*emptiest, *cheapest_first)]

    def _able(self, profile: Profile, gpus: NDArray[np.int64], least: int) -> NDArray[np.bool_]:
        """Tells for each GPU if this share, the memory of the smallest batch and the host's part are free there."""
        rooms, demand, least_gib = self.rooms, profile.demand, min(profile.memory_gib.values())
        node = rooms.node[gpus]
        able: NDArray[np.bool_] = (rooms.sm[gpus] >= least) & (rooms.memory_gib[gpus] >= least_gib)
        able &= (rooms.cpu[node] >= demand.cpu_cores) & (rooms.host_gib[node] >= demand.host_memory_gib)
        return able

    def _around(self, room: GpuRoom) -> OfferedRoom:
        at, rooms = room.number, self.rooms
        return OfferedRoom(
            int(rooms.sm[at]), float(rooms.memory_gib[at]), room.pressure(), float(rooms.watts[at]), room.slower
        )

    def _neighbours_bear(self, room: GpuRoom, shape: AddedShape) -> bool:
        """Returns whether all that runs there keeps its SLO at its rate beside one more; notes their batch timeouts."""
        policy = self.problem.policy
        more = float(read_grid(shape.profile).pressure[shape.sm_percent])
        if more >= room.unbearable and policy.pricing == "gpu":
            return False
        pressure = room.pressure() + more
        free = float(self.rooms.sm[room.number]) - shape.sm_percent
        lines = []
        for seat in room.seats:
            line, service = seat.line, seat.service
            exec_ms = room.exec_ms(policy, seat, pressure, free)
            judged = exec_ms * (1 + policy.exec_margin)
            if line.rate_per_second * exec_ms / 1000 / line.batch > policy.utilization * (1 + SAME_SHARE):
                room.unbearable = min(room.unbearable, more)
                return False
            timeout = None
            if judged <= service.slo_ms:
                timeout = timeout_for(
                    line.batch, judged, service.slo_ms, service.percentile, line.rate_per_second, service.variation
                )  # fmt: skip
            if timeout is None:
                room.unbearable = min(room.unbearable, more)
                return False
            is_same = abs(timeout - line.batch_timeout_ms) <= SAME_SHARE * max(1.0, timeout)
            lines.append(line if is_same else replace(line, batch_timeout_ms=timeout))
        for seat, line in zip(room.seats, lines, strict=True):
            seat.line = line
        return True

    def _name(self, service: str, serial: int, node: str, gpu: int) -> str:
        """Returns a name that nothing has, also not what an earlier addition started there."""
        found = next(
            name for number in count(serial) if (name := f"{service}+{number}@{node}/{gpu}") not in self._taken
        )  # fmt: skip
        self._taken.add(found)
        return found

    def _seated(self, service: Service, room: GpuRoom, shape: AddedShape, serial: int) -> Seat:
        node, gpu = self.rooms.places[room.number]
        profile, grid = shape.profile, read_grid(shape.profile)
        line = Instance(
            self._name(service.name, serial, node, gpu), service.name, node, gpu, profile.variant, shape.batch,
            0.0, shape.sm_percent, shape.memory_gib, room.clock_mhz, shape.rate_per_second,
        )  # fmt: skip
        alone_ms = float(grid.exec_ms[grid.row_of[shape.batch], shape.sm_percent])
        pressure = float(grid.pressure[shape.sm_percent])
        seat = Seat(service, profile.demand, alone_ms, pressure, line, None)
        watts = float(grid.power_w[shape.sm_percent]) * room.slower**-profile.demand.power_exponent
        self.rooms.seat(room.number, seat, watts)
        return seat
