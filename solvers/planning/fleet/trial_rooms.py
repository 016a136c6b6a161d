"""Tracks the free room of a fleet to which instances are added again and again: what was placed can be taken back.

It also knows the availability that services ask for, what it costs to open a GPU, and what GPUs are known not to bear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.planning.fleet.grids import Floats
from solvers.planning.fleet.kernels import count_rooms
from solvers.planning.fleet.offers import FleetShape, GpuPool, SpareRoom
from solvers.planning.fleet.rooms import SLACK, FleetRooms, Ints
from solvers.planning.judge.billing import gpu_price, is_billed_whole, whole_price
from solvers.planning.judge.readings import JudgedGpu
from solvers.planning.pressures import Pressure, add_parts
from solvers.planning.problem import Instance, Place, PlacedJob, Problem, Service


class TrialRooms(FleetRooms):
    """The rooms of a fleet that can go back to what runs."""

    def __init__(self, problem: Problem, seats: Iterable[Instance], jobs: Iterable[PlacedJob]) -> None:
        super().__init__(problem, seats, jobs)
        nodes = problem.nodes.values()
        self._log: list[tuple[Any, Any, Any]] = []  # what was changed: where, and what stood there
        self._changes = 0
        self._pool_of = {pool: number for number, pool in enumerate(self.pools)}
        self._gpus_of = [np.flatnonzero(self.pool_numbers == number) for number in range(len(self.pools))]
        self._pools_of = [set(self.pool_numbers[self.node_numbers == number].tolist()) for number in range(len(nodes))]
        self._is_spot = np.array([node.purchase == "spot" for node in nodes], dtype=bool)
        self._is_whole = np.array([is_billed_whole(node, problem.policy) for node in nodes], dtype=bool)
        prices = [whole_price(n) if is_billed_whole(n, problem.policy) else gpu_price(n) for n in nodes]
        self._opening = np.array(prices, dtype=np.float64)[self.node_numbers]  # what a GPU costs that is not paid yet
        self._unborne = np.full(len(self.places), inf)  # pressure beside which some of what runs there is too slow
        self._open_now: tuple[int, str, NDArray[np.bool_]] | None = None  # what was last asked: after which change
        self._counted: dict[tuple[str, int], tuple[Sequence[FleetShape], Floats, tuple[int, int], list[int]]] = {}
        for place, gpu in self.gpus.items():
            if gpu.residents:
                self._pay(self.numbers[place])
        self.keep()

    def keep(self) -> None:
        """Makes what is placed now what `undo` goes back to."""
        self._log.clear()
        self._changed_at = [self._next_change()] * len(self.pools)  # the number of the last change in each pool

    def undo(self) -> None:
        """Takes back all that was placed or noted since the fleet was read or last kept."""
        while self._log:
            where, at, before = self._log.pop()
            if where is self._changed_at:
                before = self._next_change()  # also what goes back is a change
            where[at] = before

    def close(self, place: Place) -> None:
        """Lets nothing else start on a GPU."""
        at = self.numbers[place]
        self._touch(at)
        self._set(self.clients, at, self.problem.policy.clients_per_gpu)

    def bear_no_more(self, place: Place, pressure: Pressure) -> None:
        """Notes that what runs on a GPU does not bear so much more pressure."""
        at = self.numbers[place]
        self._touch(at)
        self._set(self._unborne, at, min(self._unborne[at], add_parts(self.pressure[at] + pressure)))

    def bear_again(self, place: Place) -> None:
        """Forgets how much pressure what runs on a GPU bears: some of it has less to do now."""
        if self._unborne[at := self.numbers[place]] < inf:
            self._touch(at)
            self._set(self._unborne, at, inf)

    def bears(self, place: Place, pressure: Pressure) -> bool:
        """Returns whether it is not known that what runs on a GPU does not bear so much more pressure."""
        at = self.numbers[place]
        return bool(self.clients[at] == 0 or add_parts(self.pressure[at] + pressure) < self._unborne[at] - SLACK)

    def gpu_at(self, place: Place) -> JudgedGpu:
        """Returns a GPU with all that ran on it at first; the caller adds what it places."""
        if (gpu := self.gpus.get(place)) is None:
            node = self.problem.nodes[place[0]]
            gpu = self.gpus[place] = JudgedGpu(node, self.problem.type_at(place), place[1])
        return gpu

    def spare_room(self, place: Place, service: Service) -> SpareRoom:
        """Returns what is left of a GPU for an instance of this service, as far as its tenant's limit goes."""
        at, limit, percent = self.numbers[place], self.problem.limits.get(service.tenant), 100
        if limit is not None and not service.is_dedicated:
            gpus, price = self.commons.left_of(service.tenant, limit)
            gpus = min(gpus, price / self.problem.nodes[place[0]].price_per_hour, 1.0)
            percent = int(100 * max(0.0, gpus) + SLACK)
        return SpareRoom(
            min(percent, int(self.free_sm[at])), float(self.free_gib[at]), float(self.free_w[at]),
            complex(self.pressure[at]), self.problem.type_of(place[0]).top_clock_mhz / self.clock_mhz(place),
        )  # fmt: skip

    def allows(self, shape: FleetShape, service: Service) -> bool:
        """Returns whether the limit of its tenant allows another instance."""
        return self._tenant_room(shape, service) > 0

    def list_cheapest(
        self, least: FleetShape, service: Service, pools: Collection[GpuPool], looks: int
    ) -> list[Place]:  # fmt: skip
        """Returns GPUs of these pools with room for at least this shape: so many that are paid, and so many others.

        The emptiest of the paid ones come first, then the others, the cheapest to open first.
        """
        if not self._tenant_room(least, service):
            return []
        found = self._list_able(least, service, pools)
        is_paid = self._opening[found] == 0
        paid, others = found[is_paid], found[~is_paid]
        paid = paid[np.argsort(-self.free_sm[paid], kind="stable")][:looks]
        others = others[np.argsort(self._opening[others], kind="stable")][:looks]
        return [self.places[at] for at in (*paid.tolist(), *others.tolist())]

    def rooms_for(self, shapes: Sequence[FleetShape], service: Service) -> list[int]:
        """Returns for each of these shapes of one pool how many more instances fit if nothing else changes."""
        changed = self._changed_at[self._pool_of[shapes[0].pool]], self._changes if service.min_instances > 1 else 0
        known = self._counted.get(key := (service.name, id(shapes)))
        if known is None or known[2] != changed:
            columns = known[1] if known else _list_columns(shapes)
            known = self._counted[key] = shapes, columns, changed, self._count_rooms(columns, shapes[0].pool, service)
        if service.tenant not in self.problem.limits:
            return known[3]
        return [min(room, self._tenant_room(shape, service)) for shape, room in zip(shapes, known[3], strict=True)]

    def put_on(self, place: Place, shape: FleetShape, service: Service) -> None:
        """Places an instance on this GPU, which has room for it."""
        at, node, commons = self.numbers[place], int(self.node_numbers[self.numbers[place]]), self.commons
        counts = self.models[service.model], self.of_service[service.name], self.clients
        arrays = (self.free_sm, self.free_gib, self.free_w, self.pressure, self.closed, *counts)
        self._touch(at)
        self._log += [(array, at, array[at]) for array in arrays]
        self._log += [(array, node, array[node]) for array in (commons.cpu_cores, commons.host_memory_gib)]
        self._log += [
            (taken, service.tenant, taken[service.tenant]) for taken in (commons.gpus_taken, commons.price_taken)
        ]
        super().put_on(place, shape, service)
        self._pay(at)

    def _count_rooms(self, columns: Floats, pool: GpuPool, service: Service) -> list[int]:
        policy, commons, found = self.problem.policy, self.commons, np.zeros(len(columns), dtype=np.int64)
        count_rooms(
            self._gpus_of[self._pool_of[pool]], self._open(service), self.node_numbers, self.free_sm,
            self.free_gib + self._slack_gib, self.free_w, self.clients, add_parts(self.pressure), self._unborne,
            self.models[service.model], commons.cpu_cores, commons.host_memory_gib, policy.clients_per_gpu,
            policy.same_model_per_gpu, columns, found,
        )  # fmt: skip
        rooms: list[int] = found.tolist()
        return rooms

    def _list_able(self, shape: FleetShape, service: Service, pools: Collection[GpuPool]) -> Ints:
        """Returns the GPUs of these pools on which another instance fits."""
        gpus = np.sort(np.concatenate([self._gpus_of[self._pool_of[pool]] for pool in pools]))
        gpus = gpus[self._open(service)[gpus]]
        node, pressure, commons = self.node_numbers[gpus], add_parts(self.pressure[gpus] + shape.pressure), self.commons
        fits = (
            (self.free_sm[gpus] >= shape.sm_percent)
            & (self.free_gib[gpus] + self._slack_gib[gpus] >= shape.memory_gib)
            & (self.free_w[gpus] * (1 + SLACK) >= shape.top_w)
            & ((self.clients[gpus] == 0) | (pressure < self._unborne[gpus] - SLACK))
            & (commons.cpu_cores[node] * (1 + SLACK) >= shape.cpu_cores)
            & (commons.host_memory_gib[node] * (1 + SLACK) >= shape.host_memory_gib)
        )
        found: Ints = gpus[fits]
        return found

    def _open(self, service: Service) -> NDArray[np.bool_]:
        """Returns for each GPU whether the service may start another instance there, whatever its shape."""
        if self._open_now is not None and self._open_now[:2] == (self._changes, service.name):
            return self._open_now[2]
        nodes, rules, used = self.problem.nodes, service.availability, self.of_service[service.name] > 0
        able = self.admits(service, self.problem.policy)
        if service.cells is not None:
            able &= np.array([node.cell in service.cells for node in nodes.values()])[self.node_numbers]
        if rules.max_spot_share < 1:
            able &= ~self._is_spot[self.node_numbers]
        if service.min_instances > 1 and used.any():
            homes = {self._names[number] for number in self.node_numbers[used]}
            regions = {nodes[name].region for name in homes}
            if rules.spread == "gpu":
                able &= ~used
            else:
                near = [name in homes if rules.spread == "node" else nodes[name].region in regions for name in nodes]
                able &= ~np.array(near)[self.node_numbers]
        self._open_now = self._changes, service.name, able
        return able

    def _next_change(self) -> int:
        self._changes += 1
        return self._changes

    def _touch(self, at: int) -> None:
        """Notes that something changes on a GPU, or on its node."""
        for pool in self._pools_of[self.node_numbers[at]]:
            self._set(self._changed_at, pool, self._next_change())

    def _pay(self, at: int) -> None:
        """Notes that services pay for a GPU: with all of its node, where that is billed whole."""
        node = self.node_numbers[at]
        for paid in np.flatnonzero(self.node_numbers == node) if self._is_whole[node] else (at,):
            self._set(self._opening, paid, 0.0)

    def _set(self, where: Any, at: Any, value: Any) -> None:
        self._log.append((where, at, where[at]))
        where[at] = value


def _list_columns(shapes: Sequence[FleetShape]) -> Floats:
    rows = [
        (s.sm_percent, s.memory_gib, s.top_w, s.pressure.real + s.pressure.imag, s.cpu_cores, s.host_memory_gib)
        for s in shapes
    ]
    return np.array(rows, dtype=np.float64)
