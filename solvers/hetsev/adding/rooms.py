"""Keeps the free room of every GPU as arrays, and what runs on those that one more instance may share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import fsum, inf

import numpy as np
from numpy.typing import NDArray

from solvers.planning.judge import JudgedPlan
from solvers.planning.judge.billing import gpu_price, is_billed_whole
from solvers.planning.judge.readings import JudgedGpu, power, watts
from solvers.planning.judge.tenants import shares_of
from solvers.planning.problem import Demand, Instance, Place, Policy, Problem, Service


@dataclass(slots=True, eq=False)
class Seat:
    """An instance on a GPU, running or added."""

    service: Service
    demand: Demand
    alone_ms: float
    pressure: float
    line: Instance
    before: Instance | None  # as it runs; None for one that is added

    @property
    def name(self) -> str:
        return self.service.name


@dataclass(slots=True)
class GpuRoom:
    """A GPU with its seats, and what else decides how fast they are."""

    number: int
    slower: float  # highest clock / clock
    clock_mhz: float
    seats: list[Seat]
    job_pressure: float
    unbearable: float = inf  # the least pressure beside which some of them were found to miss their SLOs

    def pressure(self) -> float:
        return fsum([self.job_pressure, *(seat.pressure for seat in self.seats)])

    def exec_ms(self, policy: Policy, seat: Seat, pressure: float, free_sm: float) -> float:
        """Returns the instance's time at this pressure of all on the GPU, with `free_sm` percent of the SMs free."""
        sensitivity = seat.demand.sensitivity
        found = seat.alone_ms * (1 + sensitivity * (pressure - seat.pressure))
        if policy.pricing == "share":
            found *= 1 + sensitivity * policy.share_pressure * max(0.0, free_sm) / 100
        return found * power(self.slower, seat.demand.clock_exponent)


@dataclass
class FreeRooms:
    """The free room of every GPU and node. Arrays are by GPU or node number."""

    problem: Problem
    judged: JudgedPlan
    places: list[Place]
    node: NDArray[np.int64]
    nodes: list[str]
    type_of: NDArray[np.int64]
    types: list[str]
    sm: NDArray[np.float64]
    memory_gib: NDArray[np.float64]
    watts: NDArray[np.float64]
    clients: NDArray[np.int64]
    price: NDArray[np.float64]  # to open it; 0 once it is paid
    is_closed: NDArray[np.bool_]  # to everything new: a job with a deadline, or a line that cannot be read
    offers: list[frozenset[str] | None] = field(default_factory=list)  # templates by node
    by_type: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    by_template: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # of nodes
    owner: dict[int, str] = field(default_factory=dict)  # GPU of a dedicated service
    cpu: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    host_gib: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    models: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    homes: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # of services
    gpus_left: dict[str, float] = field(default_factory=dict)  # of tenants
    price_left: dict[str, float] = field(default_factory=dict)
    rooms: dict[int, GpuRoom] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, judged: JudgedPlan) -> FreeRooms:
        """Reads the room of all GPUs from a judged plan."""
        nodes = sorted(problem.nodes)
        places = [(name, index) for name in nodes for index in problem.nodes[name].gpus]
        owners = [problem.nodes[name] for name in nodes]
        types = sorted(problem.gpu_types)
        number = {name: at for at, name in enumerate(types)}
        count = np.array([node.gpu_count for node in owners], dtype=np.int64)
        kinds = [problem.gpu_types[name] for name in types]
        type_of = np.repeat(np.array([number[node.gpu_type] for node in owners], dtype=np.int64), count)
        memory = np.array([kind.memory_gib for kind in kinds], dtype=np.float64)
        power_w = np.array([kind.max_w - kind.idle_w for kind in map(problem.type_at, places)], dtype=np.float64)
        total, price = len(places), np.array([gpu_price(node) for node in owners], dtype=np.float64)
        found = cls(
            problem, judged, places, np.repeat(np.arange(len(nodes)), count), nodes, type_of, types,
            np.full(total, 100.0), memory[type_of], power_w,
            np.full(total, problem.policy.clients_per_gpu, dtype=np.int64), np.repeat(price, count),
            np.zeros(total, dtype=np.bool_), [node.templates for node in owners],
            cpu=np.array([node.cpu_cores for node in owners], dtype=np.float64),
            host_gib=np.array([node.host_memory_gib for node in owners], dtype=np.float64),
            gpus_left={name: inf if limit.gpus is None else limit.gpus for name, limit in problem.limits.items()},
            price_left={
                name: inf if limit.price_per_hour is None else limit.price_per_hour
                for name, limit in problem.limits.items()
            },
        )  # fmt: skip
        for at, place in enumerate(places):
            if gpu := judged.on(place):
                found._take(at, gpu)
        return found

    def copied(self, problem: Problem) -> FreeRooms:
        """Returns a copy for a problem with other rates: what is added to it leaves this one as it is."""
        return replace(
            self, problem=problem, sm=self.sm.copy(), memory_gib=self.memory_gib.copy(), watts=self.watts.copy(),
            clients=self.clients.copy(), price=self.price.copy(), cpu=self.cpu.copy(), host_gib=self.host_gib.copy(),
            owner=dict(self.owner), gpus_left=dict(self.gpus_left), price_left=dict(self.price_left), rooms={},
            models=defaultdict(dict, {model: dict(here) for model, here in self.models.items()}),
            homes=defaultdict(set, {name: set(here) for name, here in self.homes.items()}),
        )  # fmt: skip

    def _take(self, at: int, gpu: JudgedGpu) -> None:
        """Subtracts all that runs on a GPU."""
        problem, node = self.problem, self.node[at]
        for line in gpu.residents:
            self.sm[at] -= line.instance.sm_percent
            self.memory_gib[at] -= line.instance.memory_gib
            self.watts[at] -= watts(line, gpu)
            self.cpu[node] -= line.demand.cpu_cores
            self.host_gib[node] -= line.demand.host_memory_gib
            if line.service is None or line.alone_ms is None:
                self.is_closed[at] = True
                continue
            self._count(at, line.service)
        for job in gpu.jobs:
            self.sm[at] -= job.placed.sm_percent
            self.memory_gib[at] -= job.placed.memory_gib
            self.watts[at] -= watts(job, gpu)
            self.cpu[node] -= job.demand.cpu_cores
            self.host_gib[node] -= job.demand.host_memory_gib
            self.is_closed[at] |= job.job is None or job.job.deadline is not None
        self.clients[at] -= len(gpu.residents) + len(gpu.jobs)
        if gpu.residents:
            self._pay(at)
        if problem.limits:
            for tenant, share in shares_of(gpu).items():
                self._charge(tenant, share, gpu.node.price_per_hour)

    def _count(self, at: int, service: Service) -> None:
        here = self.models[service.model]
        here[at] = here.get(at, 0) + 1
        self.homes[service.name].add(at)
        if service.is_dedicated:
            self.owner[at] = service.name

    def _pay(self, at: int) -> None:
        """Notes that services pay for a GPU: with all of its node, where that is billed whole."""
        node = self.problem.nodes[self.places[at][0]]
        if is_billed_whole(node, self.problem.policy):
            self.price[self.node == self.node[at]] = 0.0
        self.price[at] = 0.0

    def _charge(self, tenant: str, share: float, price_per_hour: float) -> None:
        if tenant in self.gpus_left:
            self.gpus_left[tenant] -= share
            self.price_left[tenant] -= share * price_per_hour

    def open_to(self, service: Service) -> NDArray[np.bool_]:
        """Returns for each GPU whether this service may run there in some shape, as far as rules without shapes say."""
        able: NDArray[np.bool_] = ~self.is_closed & (self.clients > 0)
        if service.availability.max_spot_share < 1:
            able &= ~np.array([self.problem.nodes[name].purchase == "spot" for name in self.nodes])[self.node]
        if service.cells is not None:
            able &= np.array([self.problem.nodes[name].cell in service.cells for name in self.nodes])[self.node]
        able[self._shut(service)] = False
        return able

    def open_of_type(self, is_open: NDArray[np.bool_], gpu_type: str, template: str | None) -> NDArray[np.int64]:
        """Returns the open GPUs of a type whose nodes offer a template."""
        gpus = self._of_type(gpu_type)
        found: NDArray[np.int64] = gpus[is_open[gpus]]
        return found if template is None else found[self._offering(template)[self.node[found]]]

    def _offering(self, template: str) -> NDArray[np.bool_]:
        """Tells for each node if it offers a template."""
        if template not in self.by_template:
            found = [offered is None or template in offered for offered in self.offers]
            self.by_template[template] = np.array(found, dtype=np.bool_)
        return self.by_template[template]

    def _of_type(self, gpu_type: str) -> NDArray[np.int64]:
        if gpu_type not in self.by_type:
            self.by_type[gpu_type] = np.flatnonzero(self.type_of == self.types.index(gpu_type))
        return self.by_type[gpu_type]

    def _shut(self, service: Service) -> list[int]:
        """Returns the GPUs on which other instances leave no place for this service."""
        most, whole = self.problem.policy.same_model_per_gpu, self.problem.policy.clients_per_gpu
        found = [at for at, count in self.models[service.model].items() if count >= most]
        found += [at for at, owner in self.owner.items() if owner != service.name]
        if service.is_dedicated:
            found += [at for at in np.flatnonzero(self.clients < whole).tolist() if self.owner.get(at) != service.name]
        if service.min_instances > 1:
            found += self._too_near(service)
        return found

    def _too_near(self, service: Service) -> list[int]:
        """Returns the GPUs that are nearer to the service's instances than its `spread` allows."""
        homes, spread = self.homes[service.name], service.availability.spread
        if spread == "gpu" or not homes:
            return sorted(homes)
        region = [self.problem.nodes[name].region if spread == "region" else name for name in self.nodes]
        held = {region[self.node[at]] for at in homes}
        near = np.array([name in held for name in region])
        return np.flatnonzero(near[self.node]).tolist()

    def still_open(self, service: Service, gpus: NDArray[np.int64], last: int) -> NDArray[np.int64]:
        """Returns the GPUs that are open to a further instance, once the last one has been placed."""
        most = self.problem.policy.same_model_per_gpu
        shut: list[int] = []
        if service.min_instances > 1:
            shut = self._too_near(service)
        elif self.models[service.model][last] >= most or self.clients[last] <= 0:
            shut = [last]
        found: NDArray[np.int64] = gpus[gpus != last] if shut == [last] else gpus[~np.isin(gpus, shut)]
        return found

    def room(self, at: int) -> GpuRoom:
        """Returns a GPU with its seats."""
        if at not in self.rooms:
            gpu = self.judged.on(self.places[at])
            kind = self.problem.type_of(self.places[at][0])
            seats = [
                Seat(line.service, line.demand, line.alone_ms, line.pressure, line.instance, line.instance)
                for line in (gpu.residents if gpu else ())
                if line.service is not None and line.alone_ms is not None
            ]
            seats.sort(key=lambda seat: seat.line.id)  # whatever was added and taken back before
            clock = gpu.clock_mhz if gpu else kind.top_clock_mhz
            pressure = fsum(job.pressure for job in gpu.jobs) if gpu else 0.0
            self.rooms[at] = GpuRoom(at, kind.top_clock_mhz / clock, clock, seats, pressure)
        return self.rooms[at]

    def admits(self, service: Service, at: int, sm_percent: int) -> bool:
        """Returns whether the tenant's limit allows so much more of this GPU."""
        if service.tenant not in self.gpus_left:
            return True
        share = self._share(service, at, sm_percent)
        price = self.problem.nodes[self.places[at][0]].price_per_hour
        return share <= self.gpus_left[service.tenant] and share * price <= self.price_left[service.tenant]

    def _share(self, service: Service, at: int, sm_percent: int) -> float:
        if not service.is_dedicated:
            return sm_percent / 100
        return 0.0 if at in self.homes[service.name] else 1.0

    def seat(self, at: int, seat: Seat, watts_drawn: float) -> None:
        """Adds an instance to a GPU."""
        line, service = seat.line, seat.service
        self._charge(
            service.tenant,
            self._share(service, at, line.sm_percent),
            self.problem.nodes[line.node].price_per_hour,
        )
        self.room(at).seats.append(seat)
        self.sm[at] -= line.sm_percent
        self.memory_gib[at] -= line.memory_gib
        self.watts[at] -= watts_drawn
        self.clients[at] -= 1
        self.cpu[self.node[at]] -= seat.demand.cpu_cores
        self.host_gib[self.node[at]] -= seat.demand.host_memory_gib
        self._count(at, service)
        self._pay(at)
