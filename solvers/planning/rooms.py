"""Tracks the free room of every GPU and node of a fleet while instances are placed one after the other.

It knows the rules that no plan may break: SMs, memory, watts, clients, CPU cores, host memory, equal models, dedicated
services, jobs and tenants' limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

import numpy as np
from numpy.typing import NDArray

from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.new_names import NewNames
from solvers.planning.offers import FleetShape, GpuPool, read_offers, why_no_shape
from solvers.planning.problem import Instance, Place, PlacedJob, Problem, Service

Ints = NDArray[np.int64]
SLACK = 1e-9
UNLIMITED = 2**31


class FleetRooms:
    """The GPUs of a fleet as arrays, and what is free on each."""

    def __init__(
        self, problem: Problem, seats: Iterable[Instance], jobs: Iterable[PlacedJob], most_pressure: float = inf, *,
        counts_watts: bool = True,
    ) -> None:  # fmt: skip
        self.problem, seats = problem, tuple(seats)
        self.names = NewNames(problem, seats)
        self._most_pressure = most_pressure  # of all on a shared GPU
        self.places: list[Place] = [(node.name, gpu) for node in problem.nodes.values() for gpu in node.gpus]
        self._at = {place: number for number, place in enumerate(self.places)}
        pools = [GpuPool.of(problem, place) for place in self.places]
        types = [pool.type_in(problem) for pool in pools]
        self.pools = list(dict.fromkeys(pools))
        numbers = {pool: number for number, pool in enumerate(self.pools)}
        self._pool = np.array([numbers[pool] for pool in pools], dtype=np.int64)
        self._names = list(problem.nodes)
        number_of = {name: number for number, name in enumerate(self._names)}
        self._node = np.array([number_of[name] for name, _ in self.places], dtype=np.int64)
        self._cores = np.array([node.cpu_cores for node in problem.nodes.values()], dtype=np.float64)
        self._host_gib = np.array([node.host_memory_gib for node in problem.nodes.values()], dtype=np.float64)
        count = len(self.places)
        self.free_gib = np.array([kind.memory_gib for kind in types], dtype=np.float64)
        self._slack_gib = self.free_gib * SLACK
        self.free_sm = np.full(count, 100, dtype=np.int64)
        self._free_w = np.array([kind.max_w - kind.idle_w if counts_watts else inf for kind in types], dtype=np.float64)
        self._pressure = np.zeros(count)
        self._clients = np.zeros(count, dtype=np.int64)
        self._models: dict[str, Ints] = defaultdict(lambda: np.zeros(count, dtype=np.int64))
        self._of_service: dict[str, Ints] = defaultdict(lambda: np.zeros(count, dtype=np.int64))
        self._closed = np.zeros(count, dtype=bool)  # by a dedicated service
        self._tenant_gpus: dict[str, float] = defaultdict(float)
        self._tenant_price: dict[str, float] = defaultdict(float)
        self._clocks: dict[Place, float] = {}
        for gpu in gpus_with(problem, seats, jobs).values():
            at = self._at[gpu.node.name, gpu.index]
            self._clocks[self.places[at]] = gpu.clock_mhz
            for line in gpu.residents:
                assert line.service
                self._hold(at, line.instance.sm_percent, line.instance.memory_gib, line.pressure, line.top_w)
                self._use_node(at, line.demand.cpu_cores, line.demand.host_memory_gib)
                self._note(at, line.service, line.instance.sm_percent)
            for job in gpu.jobs:
                self._hold(at, job.placed.sm_percent, job.placed.memory_gib, job.pressure, job.top_w)
                if job.placed.gpu == gpu.index:  # of a job on several GPUs the node bears its demand once
                    self._use_node(at, job.demand.cpu_cores, job.demand.host_memory_gib)

    def room_for(self, shape: FleetShape, service: Service) -> int:
        """Returns how many more instances of this shape fit if nothing else changes."""
        fits = self._able(shape, service)
        if not fits.any():
            return 0
        most = np.minimum(self.free_sm // shape.sm_percent, self.problem.policy.clients_per_gpu - self._clients)
        most = np.minimum(most, self.problem.policy.same_model_per_gpu - self._models[service.model])
        most = np.minimum(most, ((self.free_gib + self._slack_gib) / max(shape.memory_gib, SLACK)).astype(np.int64))
        by_node = np.bincount(self._node, np.where(fits, np.maximum(most, 1), 0), len(self._names))
        for free, each in ((self._cores, shape.cpu_cores), (self._host_gib, shape.host_memory_gib)):
            if each > 0:
                by_node = np.minimum(by_node, np.floor(free / each * (1 + SLACK)))
        return min(int(by_node.sum()), self._tenant_room(shape, service))

    def put(self, shape: FleetShape, service: Service) -> Place | None:
        """Places an instance by worst fit, on the GPU with most free memory; None where none has room."""
        able = self._able(shape, service)
        if not able.any() or not self._tenant_room(shape, service):
            return None
        return self._take(int(np.where(able, self.free_gib, -1.0).argmax()), shape, service)

    def places_for(self, shape: FleetShape, service: Service) -> list[Place]:
        """Returns the GPUs of the shape's pool with room for an instance."""
        if not self._tenant_room(shape, service):
            return []
        return [self.places[at] for at in np.flatnonzero(self._able(shape, service))]

    def clock_mhz(self, place: Place) -> float:
        """Returns the clock that a new instance has there: that of what runs, or the highest."""
        return self._clocks.get(place, self.problem.type_of(place[0]).top_clock_mhz)

    def used_percent(self, place: Place) -> int:
        """Returns the SM% of a GPU that are taken."""
        return 100 - int(self.free_sm[self._at[place]])

    def pool_of(self, place: Place) -> GpuPool:
        return self.pools[int(self._pool[self._at[place]])]

    def idle_places(self, shape: FleetShape, service: Service) -> list[Place]:
        """Returns the GPUs of the shape's pool on which nothing runs and an instance fits."""
        if not self._tenant_room(shape, service):
            return []
        return [self.places[at] for at in np.flatnonzero(self._able(shape, service) & (self._clients == 0))]

    def idle_in(self, pool: GpuPool) -> list[Place]:
        """Returns the GPUs of a pool on which nothing runs."""
        there = (self._pool == self.pools.index(pool)) & (self._clients == 0)
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
        return bool((self._clients == 0).any())

    def can_hold(self, place: Place, shape: FleetShape, service: Service) -> bool:
        """Returns whether this GPU has room for an instance."""
        return bool(self._tenant_room(shape, service)) and bool(self._able(shape, service)[self._at[place]])

    def put_on(self, place: Place, shape: FleetShape, service: Service) -> None:
        """Places an instance on this GPU, which has room for it."""
        self._take(self._at[place], shape, service)

    def start_on(self, place: Place, shape: FleetShape, service: Service) -> Instance:
        """Places a new instance on this idle GPU, at its highest clock and without a rate yet."""
        self.put_on(place, shape, service)
        return Instance(
            self.names.at(service.name, place), service.name, *place, shape.variant, shape.batch, 0.0,
            shape.sm_percent, shape.memory_gib, self.problem.type_of(place[0]).top_clock_mhz, 0.0,
        )  # fmt: skip

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
        there = self._pool == self.pools.index(shape.pool)
        if not self._tenant_room(shape, service):
            return f"the limit of tenant {service.tenant} leaves no room for another instance"
        name = shape.pool.gpu_type
        if not (there & (self.free_gib >= shape.memory_gib)).any():
            free = self.free_gib[there].max()
            return f"an instance needs {shape.memory_gib:g} GiB; the largest free slot of a {name} is {free:.4g} GiB"
        if not (there & (self.free_sm >= shape.sm_percent)).any():
            free = self.free_sm[there].max()
            return f"an instance needs {shape.sm_percent} % of the SMs; at most {free} % of a {name} are free"
        if not (there & (self._models[service.model] < self.problem.policy.same_model_per_gpu)).any():
            return f"every {name} already runs an instance of {service.model}"
        return f"no {name} has SMs, memory, watts, CPU cores and host memory for another instance at once"

    def _able(self, shape: FleetShape, service: Service) -> NDArray[np.bool_]:
        policy, alone = self.problem.policy, self._clients == 0
        able: NDArray[np.bool_] = (
            (self._pool == self.pools.index(shape.pool))
            & (self.free_sm >= shape.sm_percent)
            & (self.free_gib + self._slack_gib >= shape.memory_gib)
            & (self._free_w * (1 + SLACK) >= shape.top_w)
            & (self._clients < policy.clients_per_gpu)
            & (self._models[service.model] < policy.same_model_per_gpu)
            & (alone | (self._pressure + shape.pressure <= self._most_pressure + SLACK))
            & (self._cores[self._node] * (1 + SLACK) >= shape.cpu_cores)
            & (self._host_gib[self._node] * (1 + SLACK) >= shape.host_memory_gib)
        )
        own = self._of_service[service.name] == self._clients  # all that runs there is its own, or nothing does
        able &= own if service.is_dedicated else ~self._closed
        used = self._of_service[service.name] > 0
        if int(used.sum()) < service.min_instances:  # so many of its instances run on different GPUs
            able &= ~used
        return able

    def _take(self, at: int, shape: FleetShape, service: Service) -> Place:
        self._hold(at, shape.sm_percent, shape.memory_gib, shape.pressure, shape.top_w)
        self._use_node(at, shape.cpu_cores, shape.host_memory_gib)
        self._note(at, service, shape.sm_percent)
        return self.places[at]

    def _tenant_room(self, shape: FleetShape, service: Service) -> int:
        limit, share = self.problem.limits.get(service.tenant), self._share(service, shape.sm_percent)
        if limit is None:
            return UNLIMITED
        room = float(UNLIMITED)
        if limit.gpus is not None:
            room = min(room, (limit.gpus - self._tenant_gpus[service.tenant]) / share)
        if limit.price_per_hour is not None:
            price = share * shape.pool.price_per_hour
            room = min(room, (limit.price_per_hour - self._tenant_price[service.tenant]) / price)
        return max(0, int(room + SLACK))

    def _share(self, service: Service, sm_percent: float) -> float:
        return 1.0 if service.is_dedicated else sm_percent / 100

    def _hold(self, at: int, sm_percent: int, memory_gib: float, pressure: float, top_w: float) -> None:
        self.free_sm[at] -= sm_percent
        self.free_gib[at] -= memory_gib
        self._free_w[at] -= top_w
        self._pressure[at] += pressure
        self._clients[at] += 1

    def _use_node(self, at: int, cpu_cores: float, host_memory_gib: float) -> None:
        self._cores[self._node[at]] -= cpu_cores
        self._host_gib[self._node[at]] -= host_memory_gib

    def _note(self, at: int, service: Service, sm_percent: float) -> None:
        self._models[service.model][at] += 1
        self._of_service[service.name][at] += 1
        self._closed[at] |= service.is_dedicated
        share = self._share(service, sm_percent)
        self._tenant_gpus[service.tenant] += share
        self._tenant_price[service.tenant] += share * self.problem.nodes[self.places[at][0]].price_per_hour
