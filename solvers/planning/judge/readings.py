"""Reads the lines of a plan: profiles at the given shares, and execution times among neighbours."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, inf, isfinite
from typing import TypeAlias, TypeVar

from solvers.planning.judge.adapters import keep_places
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Node,
    PlacedJob,
    Policy,
    Problem,
    Profile,
    Service,
)

Value = TypeVar("Value", float, complex)

NOTHING = Demand()
_Shape: TypeAlias = tuple[Profile, float | None, complex, float]  # its time alone, its pressure and its watts


@dataclass(slots=True, eq=False)
class Resident:
    """An instance with everything that it refers to; None for what does not exist."""

    instance: Instance
    service: Service | None
    profile: Profile | None
    demand: Demand
    alone_ms: float | None  # a batch alone at the highest clock; None where that was not profiled
    pressure: complex
    top_w: float  # busy, above idle, at the highest clock
    exec_ms: float | None = None  # among its neighbours at its clock, without the margin


@dataclass(slots=True, eq=False)
class JobResident:
    """A job that runs, with everything that it refers to."""

    placed: PlacedJob
    job: Job | None
    profile: JobProfile | None
    demand: Demand
    alone_per_second: float | None
    pressure: complex
    top_w: float
    clock_mhz: float = 0.0  # its GPU's
    units_per_second: float | None = None


@dataclass(slots=True, eq=False)
class JudgedGpu:
    """A GPU and all that runs on it."""

    node: Node
    type: GpuType
    index: int
    residents: list[Resident] = field(default_factory=list)
    jobs: list[JobResident] = field(default_factory=list)

    @classmethod
    def nowhere(cls, index: int) -> JudgedGpu:
        """Returns a holder for lines on a GPU that does not exist; no rule looks at it."""
        node = Node("", "", (0,), 0.0, 0.0, 1.0)
        return cls(node, GpuType("", 1.0, 0.0, 0.0, (1.0,)), index)

    @property
    def name(self) -> str:
        return f"{self.node.name}/{self.index}"

    @property
    def clock_mhz(self) -> float:
        """Returns the clock that its instances state, or the highest if there are only jobs."""
        clocks = [resident.instance.clock_mhz for resident in self.residents]
        known = [clock for clock in clocks if clock in self.type.clocks_mhz]
        return min(known) if known else self.type.top_clock_mhz

    @property
    def sm_percent(self) -> float:
        total = sum([resident.instance.sm_percent for resident in self.residents])
        return total + sum([job.placed.sm_percent for job in self.jobs]) if self.jobs else total


class Reader:
    """Looks lines of a plan up in a problem; caches what it reads."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._shapes: dict[tuple[str, str, str, float, float], _Shape | None] = {}

    def resident(self, instance: Instance, service: Service | None, node: Node | None) -> Resident:
        if service is None or node is None:
            return Resident(instance, service, None, NOTHING, None, 0.0, 0.0)
        key = (service.model, instance.variant, node.gpu_type, instance.batch, instance.sm_percent)
        try:
            shape = self._shapes[key]
        except KeyError:
            shape = self._shapes[key] = self._shape(*key)
        if shape is None:
            return Resident(instance, service, None, NOTHING, None, 0.0, 0.0)
        profile, alone_ms, pressure, top_w = shape
        if service.tokens is not None:
            alone_ms, pressure = None, 0.0  # it has no batches, and no neighbours
            profile = keep_places(profile, service)
        return Resident(instance, service, profile, profile.demand, alone_ms, pressure, top_w)

    def _shape(self, model: str, variant: str, gpu_type: str, batch: float, sm_percent: float) -> _Shape | None:
        profile = self.problem.profiles.get((model, variant, gpu_type))
        if profile is None:
            return None
        curve = profile.latency_ms.get(int(batch)) if batch == int(batch) else None
        alone_ms = None if curve is None else value_at(curve, sm_percent)
        demand = profile.demand
        return profile, alone_ms, value_at(demand.pressure, sm_percent), value_at(demand.power_w, sm_percent)

    def job(self, placed: PlacedJob, node: Node | None) -> JobResident:
        job = self.problem.jobs.get(placed.job)
        profile = job.profiles.get(node.gpu_type) if job and node else None
        if profile is None:
            return JobResident(placed, job, None, NOTHING, None, 0.0, 0.0)
        demand, sm_percent = profile.demand, placed.sm_percent
        return JobResident(
            placed, job, profile, demand, value_at(profile.units_per_second, sm_percent),
            value_at(demand.pressure, sm_percent), value_at(demand.power_w, sm_percent),
        )  # fmt: skip


def value_at(curve: Sequence[tuple[int, Value]], sm_percent: float) -> Value:
    """Interpolates between points; the result is flat beyond them."""
    at = bisect_left(curve, sm_percent, key=lambda point: point[0])
    if at == len(curve):
        return curve[-1][1]
    above, high = curve[at]
    if at == 0 or above == sm_percent:
        return high
    below, low = curve[at - 1]
    return low + (high - low) * (sm_percent - below) / (above - below)


def slow_down(gpu: JudgedGpu, policy: Policy) -> None:
    """Computes execution times and job speeds among all that runs on the GPU.

    exec = alone x (1 + sum over compute and bandwidth of sensitivity x sum of the others' pressures)
    x (highest clock / clock) ** clockExponent and, where shares are paid, x (1 + larger sensitivity x sharePressure
    x (100 - sum of SM%) / 100). The last factor holds for a dedicated service's GPU, too.
    """
    residents, jobs = gpu.residents, gpu.jobs
    lines: list[Resident | JobResident] = [*residents, *jobs]
    compute, bandwidth = fsum([line.pressure.real for line in lines]), fsum([line.pressure.imag for line in lines])
    left = 0.0
    if policy.pricing == "share":
        left = policy.share_pressure * max(0.0, 100 - gpu.sm_percent) / 100
    top = gpu.type.top_clock_mhz
    for resident in residents:
        if resident.alone_ms is None:
            resident.exec_ms = None
            continue
        feels, own = resident.demand.sensitivity, resident.pressure
        slower = 1 + feels.real * (compute - own.real) + feels.imag * (bandwidth - own.imag)
        exec_ms = resident.alone_ms * slower
        if left:
            exec_ms *= 1 + max(feels.real, feels.imag) * left
        clock = resident.instance.clock_mhz
        if clock != top and clock in gpu.type.clocks_mhz:
            exec_ms *= power(top / clock, resident.demand.clock_exponent)
        resident.exec_ms = exec_ms
    if not jobs:
        return
    clock = gpu.clock_mhz
    for job in jobs:
        job.clock_mhz = clock
        if job.alone_per_second is None:
            continue
        feels, own = job.demand.sensitivity, job.pressure
        slower = 1 + feels.real * (compute - own.real) + feels.imag * (bandwidth - own.imag)
        if left:
            slower *= 1 + max(feels.real, feels.imag) * left
        job.units_per_second = job.alone_per_second / (slower * power(top / clock, job.demand.clock_exponent))


def watts(line: Resident | JobResident, gpu: JudgedGpu) -> float:
    """powerW x (clock / highest) ** powerExponent: the watts above idle while it is busy."""
    clock = line.instance.clock_mhz if isinstance(line, Resident) else line.clock_mhz
    if clock == gpu.type.top_clock_mhz or clock not in gpu.type.clocks_mhz:
        return line.top_w
    return line.top_w * power(clock / gpu.type.top_clock_mhz, line.demand.power_exponent)


def power(base: float, exponent: float) -> float:
    """base ** exponent, infinite where floats cannot hold it."""
    try:
        found: float = base**exponent
    except OverflowError:
        return inf
    return found if isfinite(found) else inf
