"""A planning problem: the fleet, the services with their SLOs, the jobs, and the prices that plans are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from solvers.planning.availability import ALL_LOAD, ANYWHERE, Availability, UsedLoad
from solvers.planning.indexes import gpu_indexes as gpu_indexes
from solvers.planning.language import AdapterPlaces, IterationCost, LlmSize, ServerMemory, TokenService
from solvers.planning.machines import GpuType as GpuType
from solvers.planning.machines import Node as Node
from solvers.planning.machines import WrongProblem as WrongProblem
from solvers.planning.measured import MeasuredInstance
from solvers.planning.pressures import Pressure, PressureCurve

Curve: TypeAlias = tuple[tuple[int, float], ...]  # (SM%, value), SM% rising
Place: TypeAlias = tuple[str, int]  # a node, and a GPU of it
Knowledge: TypeAlias = Mapping[str, Any]  # JSON: it is recorded with each plan, and replayed
ProfileKey: TypeAlias = tuple[str, str, str]  # model, variant, GPU type
OWN = "own:"  # no template's name has a colon
LimitSource: TypeAlias = Literal["declared", "share", "budget"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One size or precision of a model."""

    name: str
    accuracy: float
    template: str | None = None  # or a name that begins with OWN, for a runtime that it brings along
    llm: LlmSize | None = None

    @property
    def is_own(self) -> bool:
        return self.template is not None and self.template.startswith(OWN)


@dataclass(frozen=True, slots=True)
class Demand:
    """The use that a resident makes of its GPU and node besides SMs, and its sensitivity to neighbours."""

    cpu_cores: float = 0.0
    host_memory_gib: float = 0.0
    pressure: PressureCurve = ((100, 0.0),)  # linear between points, flat beyond
    sensitivity: Pressure = 0.0  # slowdown by a pressure of 1, on compute and on bandwidth
    power_w: Curve = ((100, 0.0),)  # above idle, busy, at the highest clock
    clock_exponent: float = 1.0
    power_exponent: float = 1.0

    @property
    def whole_pressure(self) -> Curve:
        """Its pressure for planners that know one: on compute and on bandwidth together."""
        return tuple([(sm_percent, value.real + value.imag) for sm_percent, value in self.pressure])

    @property
    def most_sensitivity(self) -> float:
        """What the whole pressure of neighbours slows it by at most."""
        compute, bandwidth = self.sensitivity.real, self.sensitivity.imag
        return compute if compute >= bandwidth else bandwidth


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Profile:
    """The measurements of a variant on a GPU type."""

    model: str
    variant: str
    gpu_type: str
    latency_ms: Mapping[int, Curve]  # batch -> curve of the time of one batch, alone, at the highest clock
    memory_gib: Mapping[int, float]  # batch -> GPU memory
    demand: Demand = Demand()
    start_seconds: float = 20.0  # from start to warm
    iteration: Mapping[int, IterationCost] = field(default_factory=dict)  # of a language model: GPUs -> time
    overhead_gib: float = 0.0  # of each GPU, besides weights, keys and values
    tokens_per_iteration: int = 2048
    engine: Mapping[int, ServerMemory] = field(default_factory=dict)  # of a language model: what its server said
    adapters: AdapterPlaces | None = None  # of a language model: what places for LoRA adapters would cost
    adapters_gib: float = 0.0  # of each GPU, where its server keeps them

    @property
    def key(self) -> ProfileKey:
        return (self.model, self.variant, self.gpu_type)


@dataclass(frozen=True, slots=True)
class Service:
    """A model served online under an SLO. `variants` are those that its accuracy admits."""

    name: str  # tenant/name
    tenant: str
    model: str
    variants: tuple[str, ...]
    slo_ms: float
    percentile: float
    rate_per_second: float
    gpu_types: tuple[str, ...] | None = None  # a closed list, the preferred one first
    min_instances: int = 1
    is_dedicated: bool = False
    priority: int = 100
    availability: Availability = ANYWHERE
    cells: frozenset[str] | None = None  # the groups of nodes that may run it, while services are divided; None: all
    used_load: UsedLoad = ALL_LOAD
    mean_accuracy: float = 0.0  # of its served requests, at least; 0: whatever its variants have
    unserved_weight: float = 1.0  # of a request a second that is not served, besides its priority
    variation: float = 0.0  # of its arrival rate by bursts, squared over the mean's square; 0: Poisson
    tokens: TokenService | None = None  # of a language model, which is promised by tokens; slo_ms is then its TTFT


@dataclass(frozen=True, slots=True)
class JobProfile:
    """The measurements of a job on a GPU type: units are steps, or requests of offline inference."""

    units_per_second: Curve
    memory_gib: float
    demand: Demand = Demand()


@dataclass(frozen=True, slots=True)
class Job:
    """Training, or offline inference. `units` are what is left to do."""

    name: str  # tenant/name
    tenant: str
    kind: Literal["training", "offline"]
    units: float
    profiles: Mapping[str, JobProfile]  # by GPU type
    deadline: datetime | None = None
    max_price_per_hour: float | None = None
    is_preemptible: bool = True
    priority: float = 100
    template: str | None = None  # that its node must offer; None: any node will do
    gpus: int = 1  # above 1: so many whole GPUs of one node, linked with each other


@dataclass(frozen=True, slots=True)
class Policy:
    """The prices and limits that decide which valid plan is best."""

    pricing: Literal["gpu", "share"] = "gpu"
    utilization: float = 0.8
    exec_margin: float = 0.05
    same_model_per_gpu: int = 1
    clients_per_gpu: int = 48
    jobs_per_gpu: int = 3
    move_price: float = 0.05
    horizon_minutes: float = 60.0
    unserved_price: float = 1000.0
    unplaced_price: float = 50.0
    waiting_price: float = 0.01
    share_pressure: float = 0.5
    share_across_tenants: bool = True  # False: own runtimes and jobs share a GPU within one tenant only
    energy_price_per_kwh: float = 0.0  # all that an objective makes of a kilowatt-hour: money, energy and carbon
    money_weight: float = 1.0  # of a GPU's price in the account that plans are chosen by
    power_budget_w: float | None = None
    planner: str = "joint"  # solvers.planners.names has them all

    def price_unserved(self, service: Service) -> float:
        """Returns the price an hour of a request a second of this service that is not served."""
        return self.unserved_price * service.priority / 100 * service.unserved_weight


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a tenant's instances may use: as declared, its share of scarce GPUs, or what a spent budget has."""

    gpus: float | None = None
    price_per_hour: float | None = None
    source: LimitSource = "declared"


@dataclass(frozen=True, slots=True)
class Instance:
    """One running process of a service on a GPU, in a shape."""

    id: str
    service: str
    node: str
    gpu: int
    variant: str
    batch: int
    batch_timeout_ms: float
    sm_percent: int
    memory_gib: float
    clock_mhz: float
    rate_per_second: float
    exec_ms: float = 0.0  # predicted, without the margin
    latency_ms: float = 0.0  # predicted, with it, at the SLO's percentile
    gpus: tuple[int, ...] = ()  # all of its GPUs, rising, where it has several; `gpu` is the first of them
    tpot_ms: float = 0.0  # predicted, of a language model; latency_ms is then the time to its first token

    @property
    def place(self) -> Place:
        return (self.node, self.gpu)

    @property
    def places(self) -> tuple[Place, ...]:
        """Returns every GPU that it holds."""
        return tuple((self.node, gpu) for gpu in self.gpus) if self.gpus else ((self.node, self.gpu),)

    @property
    def degree(self) -> int:
        return len(self.gpus) or 1


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job on a GPU."""

    job: str
    node: str
    gpu: int
    sm_percent: int
    memory_gib: float
    units_per_second: float = 0.0  # predicted
    gpus: tuple[int, ...] = ()  # all of its GPUs, rising, where it has several; `gpu` is the first of them

    @property
    def place(self) -> Place:
        return (self.node, self.gpu)

    @property
    def places(self) -> tuple[Place, ...]:
        """Returns every GPU that it holds."""
        return tuple((self.node, gpu) for gpu in self.gpus) if self.gpus else ((self.node, self.gpu),)

    @property
    def degree(self) -> int:
        return len(self.gpus) or 1


@dataclass(frozen=True, slots=True)
class RunningState:
    """The instances and jobs that run now, and what their planner remembers."""

    now: datetime | None = None
    running: tuple[Instance, ...] = ()
    jobs: tuple[PlacedJob, ...] = ()
    knowledge: Knowledge = field(default_factory=dict)  # by planner: what it remembers from its last question
    measured: Mapping[str, MeasuredInstance] = field(default_factory=dict)  # for planners that try batches
    paces: Mapping[str, float] = field(default_factory=dict)  # likewise: units a second of running jobs, as measured
    swapped: tuple[PlacedJob, ...] = ()  # jobs that wait in host memory, as they ran


@dataclass(frozen=True)
class Problem:
    """Everything that a plan is made from and judged by. The constructor checks that everything named exists."""

    gpu_types: Mapping[str, GpuType]
    nodes: Mapping[str, Node]
    models: Mapping[str, tuple[Variant, ...]]
    profiles: Mapping[ProfileKey, Profile]
    services: Mapping[str, Service]
    jobs: Mapping[str, Job] = field(default_factory=dict)
    policy: Policy = Policy()
    limits: Mapping[str, Limit] = field(default_factory=dict)  # by tenant
    state: RunningState | None = None
    spare: Mapping[str, int] = field(default_factory=dict)  # GPU type -> how many more could be had

    def __post_init__(self) -> None:
        for node in self.nodes.values():
            _known(node.gpu_type, self.gpu_types, f"node {node.name}", "GPU type")
            if not node.gpus:
                raise WrongProblem(f"node {node.name} has 0 GPUs; at least 1 is needed")
            if not node.price_per_hour > 0:
                raise WrongProblem(f"node {node.name} costs {node.price_per_hour:g} per GPU; a price over 0 is needed")
        for profile in self.profiles.values():
            _known(profile.gpu_type, self.gpu_types, f"the profile of {profile.model}", "GPU type")
            _known(profile.model, self.models, "a profile", "model")
        for service in self.services.values():
            _known(service.model, self.models, f"service {service.name}", "model")
            if not service.rate_per_second > 0:
                raise WrongProblem(f"service {service.name} has rate {service.rate_per_second:g}; over 0 is needed")
        if self.state:
            self._check_names(self.state)

    def _check_names(self, state: RunningState) -> None:
        for instance in state.running:
            if instance.node not in self.nodes or instance.service not in self.services:
                _known(instance.node, self.nodes, f"running instance {instance.id}", "node")
                _known(instance.service, self.services, f"running instance {instance.id}", "service")
        for job in (*state.jobs, *state.swapped):
            _known(job.node, self.nodes, f"running job {job.job}", "node")
            _known(job.job, self.jobs, f"a running job on {job.node}", "job")

    def type_of(self, node: str) -> GpuType:
        return self.gpu_types[self.nodes[node].gpu_type]

    def type_at(self, place: Place) -> GpuType:
        """Returns the type of a GPU; its maxW is the cap of that GPU, where its node has one."""
        node = self.nodes[place[0]]
        return node.type_at(place[1], self.gpu_types[node.gpu_type])

    def profile(self, service: str, variant: str, node: str) -> Profile | None:
        """Returns the profile of an instance; None if its variant was never measured on the node's GPU type."""
        return self.profiles.get((self.services[service].model, variant, self.nodes[node].gpu_type))

    def change_rates(self, rates: Mapping[str, float]) -> Problem:
        """Returns the same problem with other rates for some services."""
        for name, rate in rates.items():
            if _known(name, self.services, "a new rate", "service") and not rate > 0:
                raise WrongProblem(f"service {name} gets rate {rate:g}; over 0 is needed")
        changed = {name: replace(self.services[name], rate_per_second=rate) for name, rate in rates.items()}
        found = object.__new__(Problem)  # all else has been checked
        vars(found).update(vars(self), services={**self.services, **changed})
        return found


def _known(name: str, among: Mapping[str, object], who: str, what: str) -> bool:
    if name not in among:
        raise WrongProblem(f"{who} names the unknown {what} {name}")
    return True
