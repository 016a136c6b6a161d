"""Tracks the free room of every GPU and node of a fleet while instances are placed one after the other.

It knows the rules that no plan may break: SMs, memory, watts, clients, CPU cores, host memory, equal models, dedicated
services, jobs and tenants' limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.planning.fleet.commons import Commons, CountsByGpu, share_of
from solvers.planning.fleet.offers import FleetShape, GpuPool, read_offers, why_no_shape
from solvers.planning.fleet.room_view import NOBODY, RoomView, list_neighbours, mean_w, stack
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import JobResident, JudgedGpu, Reader, Resident, watts
from solvers.planning.new_names import NewNames
from solvers.planning.pressures import Pressure, add_parts
from solvers.planning.problem import Instance, Node, Place, PlacedJob, Policy, Problem, Service

Ints = NDArray[np.int64]
SLACK = 1e-9
UNLIMITED = 2**31
ALL = slice(None)  # GPUs


class WholeNeed(NamedTuple):
    """What an instance or a job takes that holds whole GPUs of a node."""

    memory_gib: float  # of each GPU
    top_w: float
    cpu_cores: float  # of the node
    host_memory_gib: float


class FleetRooms:
    """The GPUs of a fleet as arrays, and what is free on each."""

    def __init__(
        self, problem: Problem, seats: Iterable[Instance], jobs: Iterable[PlacedJob], most_pressure: float = inf, *,
        counts_watts: bool = True, reader: Reader | None = None,
    ) -> None:  # fmt: skip
        self.problem, seats = problem, tuple(seats)
        self.names = NewNames(problem, seats)
        self._most_pressure, self._counts_watts = most_pressure, counts_watts  # of all on a shared GPU
        self.places: list[Place] = [(node.name, gpu) for node in problem.nodes.values() for gpu in node.gpus]
        self.numbers = {place: number for number, place in enumerate(self.places)}
        pools: list[GpuPool] = []
        for node in problem.nodes.values():
            if node.caps_w:
                pools += [GpuPool.of(problem, (node.name, gpu)) for gpu in node.gpus]
            elif node.gpus:
                pools += [GpuPool.of(problem, (node.name, node.gpus[0]))] * node.gpu_count
        known: dict[GpuPool, int] = {}
        self.pool_numbers = np.array([known.setdefault(pool, len(known)) for pool in pools], dtype=np.int64)
        self.pools, kinds = list(known), [pool.type_in(problem) for pool in known]
        types = [kinds[number] for number in self.pool_numbers.tolist()]
        self._names, self.commons = list(problem.nodes), Commons.of(problem.nodes)
        self.node_numbers = np.array([self.commons.nodes[name] for name, _ in self.places], dtype=np.int64)
        count = len(self.places)
        self.free_gib = np.array([kind.memory_gib for kind in types], dtype=np.float64)
        self._slack_gib = self.free_gib * SLACK
        self.free_sm = np.full(count, 100, dtype=np.int64)
        self.free_w = np.array([kind.max_w - kind.idle_w if counts_watts else inf for kind in types], dtype=np.float64)
        self.pressure = np.zeros(count, np.complex128)
        self.clients = np.zeros(count, dtype=np.int64)
        self.models, self.of_service = CountsByGpu(count), CountsByGpu(count)
        self.closed = np.zeros(count, dtype=bool)  # by a dedicated service
        self.clocks: dict[Place, float] = {}
        self._idle_links: dict[str, list[tuple[int, ...]]] = {}  # of nodes that were asked for
        self.gpus = gpus_with(problem, seats, jobs, reader)  # those on which something runs
        # A running job may hold a GPU that no plan may use.
        used = [(self.numbers[place], gpu) for place, gpu in self.gpus.items() if place in self.numbers]
        self._count(used)
        self._seat(used)
        if problem.policy.power_budget_w is not None:
            idle_w = sum(kind.idle_w for kind in types)
            self.commons.drawn_w = idle_w + sum(mean_w(gpu) for gpu in self.gpus.values())

    def copy(self) -> FleetRooms:
        """Returns the same, to change for trial."""
        rooms = copy(self)
        for array in ("free_sm", "free_gib", "free_w", "pressure", "clients", "closed", "models", "of_service"):
            setattr(rooms, array, getattr(self, array).copy())
        rooms.commons, rooms.gpus, rooms.names = self.commons.copy(), dict(self.gpus), self.names.copy()
        rooms.clocks, rooms._idle_links = dict(self.clocks), {}
        return rooms

    def _seat(self, gpus: Sequence[tuple[int, JudgedGpu]]) -> None:
        """Notes what runs there: its services and tenants, and what it takes of nodes."""
        running: dict[str, list[int]] = defaultdict(list)  # the GPUs of a service's instances
        taken: list[tuple[int, float, float]] = []  # a GPU, cores and host memory of its node
        for at, gpu in gpus:
            for line in gpu.residents:
                service = line.service
                assert service
                for other in line.instance.places[1:]:
                    self._hold(self.numbers[other], 100, line.instance.memory_gib, 0.0, line.top_w)
                taken.append((at, line.demand.cpu_cores, line.demand.host_memory_gib))
                is_paid = service.is_dedicated and running[service.name][-1:] == [at]  # for all of it, and once
                running[service.name].append(at)
                share = 0.0 if is_paid else line.instance.degree * share_of(service, line.instance.sm_percent)
                self.commons.charge(service.tenant, share, gpu.node.price_per_hour)
            taken += [
                (at, job.demand.cpu_cores, job.demand.host_memory_gib)
                for job in gpu.jobs
                if job.placed.gpu == gpu.index  # of a job on several GPUs the node bears its demand once
            ]
        for name, numbers in running.items():
            self._note(self.problem.services[name], numbers)
        if taken:
            on, cores, hosted = np.array(taken).T
            nodes = self.node_numbers[on.astype(np.int64)]
            np.subtract.at(self.commons.cpu_cores, nodes, cores)
            np.subtract.at(self.commons.host_memory_gib, nodes, hosted)

    def count(self, at: int, gpu: JudgedGpu) -> None:
        """States what is free of a GPU next to all that runs on it."""
        self._count([(at, gpu)])

    def _count(self, gpus: Sequence[tuple[int, JudgedGpu]]) -> None:
        rows = []
        for at, gpu in gpus:
            clock_mhz = self.clocks[self.places[at]] = gpu.clock_mhz
            for job in gpu.jobs:
                job.clock_mhz = clock_mhz
            lines: list[Resident | JobResident] = [*gpu.residents, *gpu.jobs]
            held = [line.instance.memory_gib for line in gpu.residents] + [job.placed.memory_gib for job in gpu.jobs]
            drawn_w = sum([watts(line, gpu) for line in lines]) if self._counts_watts else 0.0
            rows.append((100 - int(gpu.sm_percent), sum(held), drawn_w))
            self.pressure[at] = sum([line.pressure for line in lines])
            self.clients[at] = len(lines)
        if rows:
            at_all = [at for at, _ in gpus]
            free_sm, held_gib, drawn = np.array(rows).T
            self.free_sm[at_all] = free_sm
            self.free_gib[at_all] = np.array([gpu.type.memory_gib for _, gpu in gpus]) - held_gib
            if self._counts_watts:
                self.free_w[at_all] = np.array([gpu.type.max_w - gpu.type.idle_w for _, gpu in gpus]) - drawn

    def view(self, rows: Sequence[Sequence[int]]) -> RoomView:
        """Returns a view for loops: each row is a GPU, by its number, or idle ones that are alike."""
        problem, numbers = self.problem, np.array([row[0] for row in rows], dtype=np.int64)
        types = [self.pools[pool].type_in(problem) for pool in self.pool_numbers[numbers].tolist()]
        gpus = [self.gpus.get(self.places[row[0]]) for row in rows]
        nodes = [problem.nodes[self.places[row[0]][0]] for row in rows]
        return RoomView(
            tuple(tuple(self.places[number] for number in row) for row in rows),
            numbers,
            tuple(nodes),
            tuple(types),
            tuple(kind.clocks_mhz if gpu is None else (gpu.clock_mhz,) for kind, gpu in zip(types, gpus, strict=True)),
            tuple(gpu is None for gpu in gpus),
            self.free_sm[numbers], self.free_gib[numbers], self.free_w[numbers], self.pressure[numbers],
            *stack([NOBODY if gpu is None else list_neighbours(problem, gpu) for gpu in gpus]),
            np.array([node.price_per_hour for node in nodes], dtype=np.float64),
        )  # fmt: skip

    def room_for(self, shape: FleetShape, service: Service) -> int:
        """Returns how many more instances of this shape fit if nothing else changes."""
        fits = self._able(shape, service)
        if not fits.any():
            return 0
        most = np.minimum(self.free_sm // shape.sm_percent, self.problem.policy.clients_per_gpu - self.clients)
        most = np.minimum(most, self.problem.policy.same_model_per_gpu - self.models[service.model])
        most = np.minimum(most, ((self.free_gib + self._slack_gib) / max(shape.memory_gib, SLACK)).astype(np.int64))
        by_node = np.bincount(self.node_numbers, np.where(fits, np.maximum(most, 1), 0), len(self._names))
        commons = self.commons
        for free, each in (
            (commons.cpu_cores, shape.cpu_cores),
            (commons.host_memory_gib, shape.host_memory_gib),
        ):
            if each > 0:
                by_node = np.minimum(by_node, np.floor(free / each * (1 + SLACK)))
        return min(int(by_node.sum()), self._tenant_room(shape, service))

    def rooms_for(self, shapes: Sequence[FleetShape], service: Service) -> list[int]:
        """Returns for each of these shapes of one pool how many more instances fit if nothing else changes."""
        return [self.room_for(shape, service) for shape in shapes]

    def put(self, shape: FleetShape, service: Service) -> Place | None:
        """Places an instance by worst fit, on the GPU with most free memory; None where none has room."""
        able = self._able(shape, service)
        if not able.any() or not self._tenant_room(shape, service):
            return None
        return self._take(int(np.where(able, self.free_gib, -1.0).argmax()), shape, service)

    def places_for(self, shape: FleetShape, service: Service) -> list[Place]:
        """Returns the GPUs of the shape's pool with room for an instance."""
        return [self.places[at] for at in self.numbers_for(shape, service).tolist()]

    def numbers_for(self, shape: FleetShape, service: Service) -> Ints:
        """Returns the numbers of the GPUs of the shape's pool with room for an instance."""
        return np.flatnonzero(self._able(shape, service) & (self._tenant_room(shape, service) > 0))

    def clock_mhz(self, place: Place) -> float:
        """Returns the clock that a new instance has there: that of what runs, or the highest."""
        return self.clocks.get(place, self.problem.type_of(place[0]).top_clock_mhz)

    def spare_gib(self, place: Place) -> float:
        """Returns the memory of a GPU that is free."""
        return float(self.free_gib[self.numbers[place]])

    def spare_percent(self, place: Place) -> int:
        """Returns the SM% of a GPU that are free."""
        return int(self.free_sm[self.numbers[place]])

    def used_percent(self, place: Place) -> int:
        """Returns the SM% of a GPU that are taken."""
        return 100 - int(self.free_sm[self.numbers[place]])

    def pool_of(self, place: Place) -> GpuPool:
        return self.pools[int(self.pool_numbers[self.numbers[place]])]

    def idle_places(self, shape: FleetShape, service: Service) -> list[Place]:
        """Returns the GPUs of the shape's pool on which nothing runs and an instance fits."""
        if not self._tenant_room(shape, service):
            return []
        return [self.places[at] for at in np.flatnonzero(self._able(shape, service) & (self.clients == 0))]

    def idle_in(self, pool: GpuPool) -> list[Place]:
        """Returns the GPUs of a pool on which nothing runs."""
        there = (self.pool_numbers == self.pools.index(pool)) & (self.clients == 0)
        return [self.places[at] for at in np.flatnonzero(there)]

    def first_place(self, shape: FleetShape, service: Service) -> Place | None:
        """Returns the first GPU of the shape's pool with room for an instance, in the order of the fleet."""
        able = self._able(shape, service)
        if not able.any() or not self._tenant_room(shape, service):
            return None
        return self.places[int(able.argmax())]

    @property
    def has_idle(self) -> bool:
        """Returns whether nothing runs on some GPU of the fleet."""
        return bool((self.clients == 0).any())

    def can_hold(self, place: Place, shape: FleetShape, service: Service) -> bool:
        """Returns whether this GPU has room for an instance."""
        return bool(self._tenant_room(shape, service)) and bool(self._able(shape, service, self.numbers[place]))

    def can_hold_memory(self, place: Place, held_gib: float, memory_gib: float) -> bool:
        """Returns whether what holds so much memory of this GPU may hold this much in its place."""
        at = self.numbers[place]
        return bool(self.free_gib[at] + self._slack_gib[at] >= memory_gib - held_gib)

    def hold_memory(self, place: Place, held_gib: float, memory_gib: float) -> None:
        """Gives what holds so much memory of this GPU another amount in its place."""
        self.free_gib[self.numbers[place]] -= memory_gib - held_gib

    def put_on(self, place: Place, shape: FleetShape, service: Service) -> None:
        """Places an instance on this GPU, which has room for it."""
        self._take(self.numbers[place], shape, service)

    def start_on(self, place: Place, shape: FleetShape, service: Service) -> Instance:
        """Places a new instance on this idle GPU, at its highest clock and without a rate yet."""
        self.put_on(place, shape, service)
        return Instance(
            self.names.at(service.name, place), service.name, *place, shape.variant, shape.batch, 0.0,
            shape.sm_percent, shape.memory_gib, self.problem.type_of(place[0]).top_clock_mhz, 0.0,
        )  # fmt: skip

    def idle_links(self, node: Node) -> list[tuple[int, ...]]:
        """Returns the GPUs of a node on which nothing runs, by group of linked ones."""
        if node.name not in self._idle_links:
            found: dict[int, list[int]] = defaultdict(list)
            for index in node.gpus:
                if not self.clients[self.numbers[node.name, index]]:
                    found[node.link_of(index)].append(index)
            self._idle_links[node.name] = [tuple(link) for _, link in sorted(found.items())]
        return self._idle_links[node.name]

    def can_hold_whole(self, places: Sequence[Place], need: WholeNeed) -> bool:
        """Returns whether nothing runs on these GPUs of one node, and they and the node have what is needed."""
        if not all(place in self.numbers for place in places):
            return False
        at = [self.numbers[place] for place in places]
        return bool(
            not self.clients[at].any()
            and (self.free_gib[at] + self._slack_gib[at] >= need.memory_gib).all()
            and (self.free_w[at] * (1 + SLACK) >= need.top_w).all()
            and self.commons.has_room(int(self.node_numbers[at[0]]), need.cpu_cores, need.host_memory_gib)
        )

    def hold_whole(self, places: Sequence[Place], need: WholeNeed) -> None:
        """Gives an instance or a job these GPUs, which can hold it."""
        for place in places:
            self._hold(self.numbers[place], 100, need.memory_gib, 0.0, need.top_w)
        self._use_node(self.numbers[places[0]], need.cpu_cores, need.host_memory_gib)

    def why_no_gpu(self, service: Service) -> str:
        """Names what keeps another instance with a GPU of its own off the fleet; empty where nothing does."""
        shapes = read_offers(self.problem).find_whole_shapes(service, self.pools)
        if not shapes:
            return why_no_shape(self.problem)
        if any(self.idle_places(shape, service) for shape in shapes):
            return ""
        if not self.has_idle:
            return "each instance needs a GPU of its own, and all are in use"
        return self.why_not(shapes[0], service)

    def why_not(self, shape: FleetShape, service: Service) -> str:
        """Names the limit that keeps another instance off every GPU of its type."""
        there = self.pool_numbers == self.pools.index(shape.pool)
        if not self._tenant_room(shape, service):
            return f"the limit of tenant {service.tenant} leaves no room for another instance"
        name = shape.pool.gpu_type
        if not (there & (self.free_gib >= shape.memory_gib)).any():
            free = self.free_gib[there].max()
            return f"an instance needs {shape.memory_gib:g} GiB; the largest free slot of a {name} is {free:.4g} GiB"
        if not (there & (self.free_sm >= shape.sm_percent)).any():
            free = self.free_sm[there].max()
            return f"an instance needs {shape.sm_percent} % of the SMs; at most {free} % of a {name} are free"
        if not (there & (self.models[service.model] < self.problem.policy.same_model_per_gpu)).any():
            return f"every {name} already runs an instance of {service.model}"
        return f"no {name} has SMs, memory, watts, CPU cores and host memory for another instance at once"

    def _able(self, shape: FleetShape, service: Service, at: int | slice = ALL) -> NDArray[np.bool_]:
        alone, node = self.clients[at] == 0, self.node_numbers[at]
        able: NDArray[np.bool_] = (
            (self.pool_numbers[at] == self.pools.index(shape.pool))
            & (self.free_sm[at] >= shape.sm_percent)
            & (self.free_gib[at] + self._slack_gib[at] >= shape.memory_gib)
            & (self.free_w[at] * (1 + SLACK) >= shape.top_w)
            & (alone | (add_parts(self.pressure[at] + shape.pressure) <= self._most_pressure + SLACK))
            & (self.commons.cpu_cores[node] * (1 + SLACK) >= shape.cpu_cores)
            & (self.commons.host_memory_gib[node] * (1 + SLACK) >= shape.host_memory_gib)
        )
        able &= self.admits(service, self.problem.policy, at)
        if service.min_instances > 1:
            used = self.of_service[service.name] > 0
            if int(used.sum()) < service.min_instances:  # so many of its instances run on different GPUs
                able &= ~used[at]
        return able

    def admits(self, service: Service, policy: Policy, at: int | slice = ALL) -> NDArray[np.bool_]:
        """Returns which GPUs the rules on neighbours leave open to another instance of a service."""
        clients = self.clients[at]
        own = self.of_service[service.name][at] == clients  # all that runs there is its own, or nothing does
        able: NDArray[np.bool_] = own if service.is_dedicated else ~self.closed[at]
        few = (clients < policy.clients_per_gpu) & (self.models[service.model][at] < policy.same_model_per_gpu)
        return able & few

    def _take(self, at: int, shape: FleetShape, service: Service) -> Place:
        self._hold(at, shape.sm_percent, shape.memory_gib, shape.pressure, shape.top_w)
        self._use_node(at, shape.cpu_cores, shape.host_memory_gib)
        is_paid = service.is_dedicated and self.of_service[service.name][at] > 0  # for all of it, and once
        self._note(service, [at])
        share = 0.0 if is_paid else share_of(service, shape.sm_percent)
        self.commons.charge(service.tenant, share, self.problem.nodes[self.places[at][0]].price_per_hour)
        return self.places[at]

    def _tenant_room(self, shape: FleetShape, service: Service) -> int:
        share = share_of(service, shape.sm_percent)
        gpus, price = self.commons.left_of(service.tenant, self.problem.limits.get(service.tenant))
        room = min(UNLIMITED, gpus / share, price / (share * shape.pool.price_per_hour))
        return max(0, int(room + SLACK))

    def _hold(self, at: int, sm_percent: int, memory_gib: float, pressure: Pressure, top_w: float) -> None:
        self.free_sm[at] -= sm_percent
        self.free_gib[at] -= memory_gib
        self.free_w[at] -= top_w
        self.pressure[at] += pressure
        self.clients[at] += 1
        self._idle_links.pop(self.places[at][0], None)

    def _use_node(self, at: int, cpu_cores: float, host_memory_gib: float) -> None:
        self.commons.use_node(int(self.node_numbers[at]), cpu_cores, host_memory_gib)

    def _note(self, service: Service, gpus: Sequence[int]) -> None:
        np.add.at(self.models[service.model], gpus, 1)
        np.add.at(self.of_service[service.name], gpus, 1)
        if service.is_dedicated:
            self.closed[gpus] = True
