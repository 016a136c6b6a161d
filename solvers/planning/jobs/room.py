"""What a plan of services leaves to jobs, as arrays: SMs, memory, watts, and the pressure that each service bears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.latency import limits
from solvers.latency.kernels import busy_at
from solvers.latency.rates import none_left
from solvers.planning.jobs.arrays import SEATS, SM, Floats, Ints, JobBoard, JobFleet, Jobs, board
from solvers.planning.jobs.kernels import KEPT, most_slowdown
from solvers.planning.problem import Curve, Instance, Job, PlacedJob, Problem, WrongProblem

Place = tuple[str, int]


@dataclass(frozen=True)
class Room:
    """GPUs and jobs by number, and what stands for them in the loops."""

    problem: Problem
    places: tuple[Place, ...]
    jobs: tuple[Job, ...]
    fleet: JobFleet
    work: Jobs
    nodes: tuple[str, ...]
    cpu_cores: Floats  # [node] left by services
    host_memory_gib: Floats
    free_w: float  # of the fleet's budget, beside what services draw on average
    number_of: dict[Place, int]
    stays: dict[int, PlacedJob]  # jobs that run and are not preemptible

    def board(self) -> JobBoard:
        """A board on which no job runs."""
        return board(self.fleet, len(self.jobs), self.cpu_cores.copy(), self.host_memory_gib.copy(), self.free_w)


def room(problem: Problem, instances: Sequence[Instance]) -> Room:
    """Everything that job placement reads, from a right plan of services."""
    names = sorted(problem.nodes)
    nodes = [problem.nodes[name] for name in names]
    places = tuple((node.name, index) for node in nodes for index in node.gpus)
    number_of = {place: number for number, place in enumerate(places)}
    node_of = np.repeat(np.arange(len(nodes)), [node.gpu_count for node in nodes]).astype(np.int64)
    types = sorted(problem.gpu_types)
    kind = np.array([types.index(node.gpu_type) for node in nodes], np.int64)[node_of]
    of_type = [problem.gpu_types[name] for name in types]
    for instance in instances:
        if instance.place not in number_of:
            raise WrongProblem(f"instance {instance.id} runs on {instance.node}/{instance.gpu}, which is not there")

    residents = _Residents(problem, instances, number_of)
    gpus = len(places)

    def summed(values: Floats) -> Floats:
        return np.bincount(residents.gpu, values, gpus).astype(np.float64)

    spare = 100 - summed(residents.sm)
    memory = np.array([one.memory_gib for one in of_type])[kind] - summed(residents.memory_gib)
    watts = np.array([one.max_w - one.idle_w for one in of_type])[kind] - summed(residents.watts)
    clock = np.ones(gpus)
    clock[residents.gpu] = residents.clock
    pressure = summed(residents.pressure)
    clients = np.bincount(residents.gpu, minlength=gpus)
    policy = problem.policy
    seats = np.clip(policy.clients_per_gpu - clients, 0, min(policy.jobs_per_gpu, SEATS))
    seats[residents.gpu[residents.is_dedicated]] = 0
    price = np.array([0.0 if node.is_paid_anyway else node.price_per_hour for node in nodes], dtype=np.float64)[node_of]
    price[residents.gpu] = 0.0

    beside = pressure[residents.gpu] - residents.pressure
    sharing = policy.share_pressure if policy.pricing == "share" else 0.0
    most = residents.bearable(beside, spare[residents.gpu], sharing)
    feels = residents.sensitivity > 0
    bears = np.full(gpus, np.inf)
    slack = (most[feels] - 1) / residents.sensitivity[feels] - beside[feels] if not sharing else np.full(0, np.inf)
    if not sharing:
        np.minimum.at(bears, residents.gpu[feels], slack - KEPT)
        np.maximum(bears, 0.0, out=bears)
    more_w, drawn_w = np.zeros(gpus), 0.0
    if policy.power_budget_w is not None:
        busy = residents.watts * residents.busy(beside, spare[residents.gpu], sharing)
        drawn_w = float(busy.sum()) + sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in nodes)
        # Slower by a factor, it starts no more often, so it is busy longer by no more than this factor.
        grows = busy * residents.sensitivity / (1 + residents.sensitivity * beside)
        more_w = summed(grows)
    order = np.argsort(residents.gpu, kind="stable")
    fleet = JobFleet(
        kind=kind, node=node_of, spare=np.maximum(spare, 0).astype(np.int64), memory_gib=memory, watts=watts + KEPT,
        clock=clock, pressure=pressure, bears=bears, more_w=more_w, seats=seats.astype(np.int64), price=price,
        start=np.searchsorted(residents.gpu[order], np.arange(gpus + 1)).astype(np.int64),
        sensitivity=residents.sensitivity[order], beside=beside[order], most=most[order], share_pressure=sharing,
    )  # fmt: skip
    jobs = tuple(problem.jobs[name] for name in sorted(problem.jobs))
    stays = _stays(problem, jobs)
    cores, hosted = np.zeros((2, len(nodes)))
    np.add.at(cores, node_of[residents.gpu], residents.cpu_cores)
    np.add.at(hosted, node_of[residents.gpu], residents.host_memory_gib)
    return Room(
        problem, places, jobs, fleet, _work(problem, jobs, types, stays), tuple(names),
        np.array([node.cpu_cores for node in nodes]) - cores + KEPT,
        np.array([node.host_memory_gib for node in nodes]) - hosted + KEPT,
        np.inf if policy.power_budget_w is None else policy.power_budget_w - drawn_w,
        number_of, stays,
    )  # fmt: skip


class _Residents:
    """Instances as columns, in the order given."""

    def __init__(self, problem: Problem, instances: Sequence[Instance], number_of: dict[Place, int]) -> None:
        self.problem, policy = problem, problem.policy
        known: dict[tuple[str, str, str, int, int, float], tuple[float, ...]] = {}
        rows: dict[tuple[float, int], int] = {}
        table = np.zeros((len(instances), 16))
        for line, one in enumerate(instances):
            service = problem.services[one.service]
            gpu_type = problem.nodes[one.node].gpu_type
            key = (service.model, one.variant, gpu_type, one.batch, one.sm_percent, one.clock_mhz)
            if key not in known:
                known[key] = _shape(problem, key)
            row = rows.setdefault((service.percentile, one.batch), len(rows))
            table[line, :5] = (number_of[one.place], one.sm_percent, one.memory_gib, one.rate_per_second, one.batch)
            table[line, 5:8] = (service.slo_ms, row, service.is_dedicated)
            table[line, 8:] = known[key]
        columns = table.T
        self.gpu: Ints = columns[0].astype(np.int64)
        self.sm, self.memory_gib, self.rate, self.batch = (np.ascontiguousarray(column) for column in columns[1:5])
        self.slo_ms, self.is_dedicated = np.ascontiguousarray(columns[5]), columns[7] > 0
        self.row: Ints = columns[6].astype(np.int64)
        self.base_ms, self.pressure, self.sensitivity, self.watts = (columns[n].copy() for n in range(8, 12))
        self.clock, self.cpu_cores, self.host_memory_gib, self.top_w = (columns[n].copy() for n in range(12, 16))
        self.rows: Floats = np.array([limits(percentile, [batch]).loads[batch] for percentile, batch in rows])
        self.margin, self.utilization = 1 + policy.exec_margin, policy.utilization

    def slowdown(self, beside: Floats, left: Floats, sharing: float) -> Floats:
        """Without jobs: interference, and others on what is left where shares are priced."""
        found: Floats = (1 + self.sensitivity * beside) * (1 + self.sensitivity * sharing * left / 100)
        return found

    def bearable(self, beside: Floats, left: Floats, sharing: float) -> Floats:
        """The slow-down each may suffer: its SLO holds, and where energy is paid for it draws no more than without."""
        now = self.slowdown(beside, left, sharing)
        most = np.zeros(len(self.gpu))
        if len(most):
            most_slowdown(
                self.base_ms, self.rate, self.slo_ms, self.batch, self.row, self.rows, self.margin, self.utilization,
                most,
            )  # fmt: skip
        most *= 1 - KEPT
        if self.problem.policy.energy_price_per_kwh > 0:
            # Slower services are busy longer: that energy would be theirs to pay (jobs may not touch resourceCost).
            most = np.where(self.watts > 0, np.minimum(most, now), most)
        return np.maximum(most, now)

    def busy(self, beside: Floats, left: Floats, sharing: float) -> Floats:
        """The fraction of time each is busy, as nothing waits for its batch to fill."""
        loads = self.rate * self.base_ms * self.slowdown(beside, left, sharing) / self.batch / 1000
        tables = none_left()
        return np.array(
            [busy_at(tables[int(batch)], int(batch), load) for batch, load in zip(self.batch, loads, strict=True)]
        )


def _shape(problem: Problem, key: tuple[str, str, str, int, int, float]) -> tuple[float, ...]:
    """What instances of this shape have in common; base is the exec alone at the GPU's clock."""
    model, variant, gpu_type, batch, sm_percent, clock_mhz = key
    profile = problem.profiles[model, variant, gpu_type]
    demand = profile.demand
    slower = problem.gpu_types[gpu_type].top_clock_mhz / clock_mhz
    top_w = at(demand.power_w, sm_percent)
    return (
        at(profile.latency_ms[batch], sm_percent) * slower**demand.clock_exponent,
        at(demand.pressure, sm_percent), demand.sensitivity, top_w * slower**-demand.power_exponent, slower,
        demand.cpu_cores, demand.host_memory_gib, top_w,
    )  # fmt: skip


def _work(problem: Problem, jobs: Sequence[Job], types: Sequence[str], stays: dict[int, PlacedJob]) -> Jobs:
    """Jobs as arrays. One that stays has a profile of its own, on its type alone, at the SM% it has."""
    now = problem.state.now if problem.state else None
    profile = np.full((len(jobs), len(types)), -1, np.int64)
    need = np.zeros(len(jobs))
    found: list[tuple[Floats, Floats, Floats, tuple[float, ...]]] = []
    seen: dict[tuple[int, ...], int] = {}
    drawn: dict[Curve, Floats] = {}  # many jobs share their curves of pressure and watts

    def everywhere(curve: Curve) -> Floats:
        if curve not in drawn:
            drawn[curve] = _everywhere(curve)
        return drawn[curve]

    for number, job in enumerate(jobs):
        staying = stays.get(number)
        if job.deadline is not None and now is not None and staying is None:
            left = (job.deadline - now).total_seconds()
            need[number] = job.units / left if left > 0 else 1e300
        for place, gpu_type in enumerate(types):
            one = job.profiles.get(gpu_type)
            if one is None or (staying and problem.nodes[staying.node].gpu_type != gpu_type):
                continue
            low, high = one.units_per_second[0][0], one.units_per_second[-1][0]
            memory = one.memory_gib
            if staying:
                low = high = min(max(staying.sm_percent, low), high)
                memory = max(memory, staying.memory_gib)
            key = (id(one), low, high, hash(memory))
            if key not in seen:
                seen[key] = len(found)
                demand = one.demand
                numbers = (low, high, memory, demand.cpu_cores, demand.host_memory_gib, demand.sensitivity,
                           demand.clock_exponent, demand.power_exponent)  # fmt: skip
                curves = (one.units_per_second, demand.pressure, demand.power_w)
                found.append((everywhere(curves[0]), everywhere(curves[1]), everywhere(curves[2]), numbers))
            profile[number, place] = seen[key]
    count = len(found)
    pace, pressure, power = (np.array([one[n] for one in found]).reshape(count, SM) for n in range(3))
    scalars = np.array([one[3] for one in found]).reshape(count, 8).T.copy()
    low, high = scalars[0].astype(np.int64), scalars[1].astype(np.int64)
    at = np.arange(SM)
    within = (at >= low[:, None]) & (at <= high[:, None])
    return Jobs(
        profile, need, low, high, np.where(within, pace, 0.0), pressure, power, scalars[2], scalars[3], scalars[4],
        scalars[5], scalars[6], scalars[7], np.maximum.accumulate(np.where(within, pace, 0.0), axis=1),
        np.where(within, pressure, np.inf).min(axis=1, initial=np.inf),
    )  # fmt: skip


def _stays(problem: Problem, jobs: Sequence[Job]) -> dict[int, PlacedJob]:
    running = {placed.job: placed for placed in (problem.state.jobs if problem.state else ())}
    return {
        number: running[job.name] for number, job in enumerate(jobs) if job.name in running and not job.is_preemptible
    }


def _everywhere(curve: Curve) -> Floats:
    found: Floats = np.interp(np.arange(SM), [point[0] for point in curve], [point[1] for point in curve])
    return found


def at(curve: Curve, sm_percent: float) -> float:
    """Linear between points, flat beyond."""
    return float(np.interp(sm_percent, [point[0] for point in curve], [point[1] for point in curve]))
