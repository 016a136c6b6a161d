"""Chooses the type of one more instance by HetSev's heuristic, and its GPU by the room that is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from solvers.hetsev.adding.rooms import FreeRooms, Room, Seat
from solvers.hetsev.adding.shapes import ProfileShapes, Shape, Surroundings, cheapest, smallest
from solvers.hetsev.scaling import greedy
from solvers.hetsev.scaling.problem import InstanceType, ScalingProblem, ScalingPromise
from solvers.latency import timeout_for
from solvers.planning.plan import NONE_UNSERVED_SHARE
from solvers.planning.problem import Instance, Problem, ProfileKey, Service

LOOKS = 16  # GPUs that are paid already, and as many others, for each instance
LEAST_PART = 0.1  # of what an instance should carry: one that carries less is not worth its process
SAME_SHARE = 1e-9


class Placer:
    """Adds instances one by one."""

    def __init__(self, problem: Problem, rooms: FreeRooms, shapes: Mapping[ProfileKey, ProfileShapes]) -> None:
        self.problem, self.rooms, self.looked_at = problem, rooms, 0
        self._shapes = shapes
        self._price = {
            kind: min((node.price_per_hour for node in problem.nodes.values() if node.gpu_type == kind), default=inf)
            for kind in problem.gpu_types
        }

    def add(self, service: Service, missing: float, running: int) -> list[Seat]:
        """Returns new instances for what is missing, as far as there is room."""
        added: list[Seat] = []
        wanted = service.min_instances - running  # so many at least, where there is none
        for whole in (True, False):
            closed: set[str] = set()
            while missing > NONE_UNSERVED_SHARE * service.rate_per_second or (0 < len(added) < wanted):
                part = max(missing, service.rate_per_second / service.min_instances if wanted > len(added) else 0.0)
                choice = self._choice(service, part, closed)
                if choice is None:
                    break
                kind, number = choice
                number = max(number, wanted - len(added))
                seat = self._one(service, kind, part / number, whole=whole, serial=len(added))
                if seat is None:
                    closed.add(kind)
                    continue
                added.append(seat)
                missing -= seat.line.rate_per_second
        return added

    def _choice(self, service: Service, missing: float, closed: set[str]) -> tuple[str, int] | None:
        """Returns the type of GPU and the number of instances that HetSev's heuristic starts."""
        kinds = []
        for name, kind in self.problem.gpu_types.items():
            if name in closed or self._price[name] == inf:
                continue
            alone = Surroundings(100, kind.memory_gib, 0.0, kind.max_w - kind.idle_w)
            shapes = [cheapest(self.problem.policy, service, of, missing, alone) for of in self._offers(service, name)]
            best = max((shape for shape in shapes if shape), key=lambda shape: shape.rate_per_second, default=None)
            if best is None:
                continue
            share = max(best.sm_percent / 100, best.memory_gib / kind.memory_gib)
            kinds.append(
                InstanceType(
                    name=name,
                    throughput_per_second=best.rate_per_second,
                    exec_ms=0.0,  # every shape keeps the SLO
                    gpu_memory_gib=(1.0 if service.is_dedicated else share) * kind.memory_gib,
                    price_per_gib=self._price[name] / kind.memory_gib,
                    most=int(self.rooms.open_to(service, name, None).sum()),
                )
            )
        problem = ScalingProblem(missing, ScalingPromise(service.slo_ms, service.percentile), tuple(kinds))
        return greedy.out(problem, {kind.name: 0 for kind in kinds}, 1.0)

    def _offers(self, service: Service, gpu_type: str) -> Iterator[ProfileShapes]:
        if service.gpu_types is not None and gpu_type not in service.gpu_types:
            return
        for variant in service.variants:
            if of := self._shapes.get((service.model, variant, gpu_type)):
                yield of

    def _one(self, service: Service, gpu_type: str, part: float, *, whole: bool, serial: int) -> Seat | None:
        """Puts one instance on the first GPU of this type that takes it."""
        for of in self._offers(service, gpu_type):
            able = self.rooms.open_to(service, gpu_type, of.template)
            for at in self._candidates(of, able):
                self.looked_at += 1
                room = self.rooms.room(at)
                shape = smallest(self.problem.policy, service, of, part, self._around(room), whole=whole)
                if shape is None or shape.rate_per_second < LEAST_PART * part:
                    continue
                if not self.rooms.admits(service, at, shape.sm_percent) or not self._neighbours_bear(room, shape):
                    continue
                return self._seated(service, room, shape, serial)
        return None

    def _candidates(self, of: ProfileShapes, able: NDArray[np.bool_]) -> list[int]:
        """Returns GPUs with room: those that are paid, the emptiest first, then the cheapest to open."""
        rooms, demand = self.rooms, of.profile.demand
        least_sm = int(np.isfinite(of.exec_ms).any(axis=0).argmax())
        able = able & (rooms.sm >= least_sm) & (rooms.memory_gib >= of.memory_gib.min())
        able &= ((rooms.cpu >= demand.cpu_cores) & (rooms.host_gib >= demand.host_memory_gib))[rooms.node]
        found = np.flatnonzero(able)
        paid = rooms.price[found] == 0
        emptiest = found[paid][np.lexsort((found[paid], -rooms.sm[found[paid]]))][:LOOKS]
        others = found[~paid]
        cheapest_first = others[np.lexsort((others, -rooms.sm[others], rooms.price[others]))][:LOOKS]
        return [int(at) for at in (*emptiest, *cheapest_first)]

    def _around(self, room: Room) -> Surroundings:
        at, rooms = room.number, self.rooms
        return Surroundings(
            int(rooms.sm[at]), float(rooms.memory_gib[at]), room.pressure(), float(rooms.watts[at]), room.slower
        )

    def _neighbours_bear(self, room: Room, shape: Shape) -> bool:
        """Tells if all that runs there keeps its SLO at its rate beside one more; notes their batch timeouts."""
        policy = self.problem.policy
        pressure = room.pressure() + float(shape.of.pressure[shape.sm_percent])
        free = float(self.rooms.sm[room.number]) - shape.sm_percent
        lines = []
        for seat in room.seats:
            line, service = seat.line, seat.service
            exec_ms = room.exec_ms(policy, seat, pressure, free)
            judged = exec_ms * (1 + policy.exec_margin)
            if line.rate_per_second * exec_ms / 1000 / line.batch > policy.utilization * (1 + SAME_SHARE):
                return False
            timeout = None
            if judged <= service.slo_ms:
                timeout = timeout_for(
                    line.batch, judged, service.slo_ms, service.percentile, line.rate_per_second, service.variation
                )  # fmt: skip
            if timeout is None:
                return False
            is_same = abs(timeout - line.batch_timeout_ms) <= SAME_SHARE * max(1.0, timeout)
            lines.append(line if is_same else replace(line, batch_timeout_ms=timeout))
        for seat, line in zip(room.seats, lines, strict=True):
            seat.line = line
        return True

    def _seated(self, service: Service, room: Room, shape: Shape, serial: int) -> Seat:
        node, gpu = self.rooms.places[room.number]
        of = shape.of
        line = Instance(
            f"{service.name}+{serial}@{node}/{gpu}", service.name, node, gpu, of.profile.variant, shape.batch, 0.0,
            shape.sm_percent, shape.memory_gib, room.clock_mhz, shape.rate_per_second,
        )  # fmt: skip
        seat = Seat(
            service, of.profile.demand, float(of.exec_ms[list(of.batches).index(shape.batch), shape.sm_percent]),
            float(of.pressure[shape.sm_percent]), line, None,
        )  # fmt: skip
        watts = float(of.power_w[shape.sm_percent]) * room.slower**-of.profile.demand.power_exponent
        self.rooms.seat(room.number, seat, watts)
        return seat
