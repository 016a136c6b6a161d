"""What a plan leaves of each GPU: room, and how much slower those who stand there may become."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import TypeAlias

import numpy as np

from solvers.latency import busy_fraction, limits
from solvers.planning.explain.kernels import most_exec_ms
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Demand, GpuType, Instance, Node, PlacedJob, Policy, Problem, ProfileKey
from solvers.planning.tables import Floats, Ints

Place = tuple[str, int]
MOST_SHARED = 32  # GPUs of one type looked at, those with most SM% left
MOST_EMPTY = 32
NOBODY = np.zeros((0, 4))


@dataclass(frozen=True, slots=True)
class Spot:
    """What is left of one GPU. Clocks are of its type; one that somebody runs at is the only one."""

    place: Place
    node: Node
    gpu_type: GpuType
    is_empty: bool
    is_dedicated: bool  # to a service that stands there
    sm_percent: int
    memory_gib: float
    clients: int
    models: Mapping[str, int]
    clocks_mhz: tuple[float, ...]
    pressure: float
    busy_w: float  # of all that runs there, at once
    neighbours: Floats  # [resident, (exec alone at its clock, sensitivity, pressure beside it, longest exec)]


@dataclass(frozen=True, slots=True)
class Measured:
    """A profile as the loops take it."""

    batches: Ints
    exec_ms: Floats  # [batch, SM%]
    memory_gib: Floats
    pressure: Floats
    power_w: Floats


Measurements: TypeAlias = dict[ProfileKey, Measured]


@dataclass(frozen=True)
class Ground:
    """A plan's leavings, for one service more."""

    problem: Problem
    spots: tuple[Spot, ...]  # the roomiest of each type
    cpu_cores: Mapping[str, float]  # left of each node
    host_memory_gib: Mapping[str, float]
    gpus_taken: Mapping[str, float]  # by tenant
    price_taken: Mapping[str, float]
    drawn_w: float
    at: Mapping[Place, tuple[Sequence[Instance], Sequence[PlacedJob]]]
    memo: Measurements = field(default_factory=dict, compare=False)  # kept by all that this becomes


def ground(problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> Ground:
    """All that the limits of GPUs, nodes, tenants and the fleet leave beside these."""
    at: dict[Place, tuple[list[Instance], list[PlacedJob]]] = defaultdict(lambda: ([], []))
    for instance in instances:
        at[instance.place][0].append(instance)
    for job in jobs:
        at[job.place][1].append(job)
    cpu = {name: node.cpu_cores for name, node in problem.nodes.items()}
    host = {name: node.host_memory_gib for name, node in problem.nodes.items()}
    gpus: dict[str, float] = defaultdict(float)
    price: dict[str, float] = defaultdict(float)
    drawn = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpus for node in problem.nodes.values())
    for (name, _), (residents, training) in at.items():
        node = problem.nodes[name]
        demands = [demand_of(problem, one) for one in residents] + [demand_of_job(problem, one) for one in training]
        cpu[name] -= sum(demand.cpu_cores for demand in demands)
        host[name] -= sum(demand.host_memory_gib for demand in demands)
        for tenant, share in shares(problem, residents).items():
            gpus[tenant] += share
            price[tenant] += share * node.price_per_hour
        if problem.policy.power_budget_w is not None:
            drawn += _busy_w(problem, residents, training)
    shared = sorted((-_left(*on), place) for place, on in at.items())
    empty = [
        (name, i) for name in sorted(problem.nodes) for i in range(problem.nodes[name].gpus) if (name, i) not in at
    ]
    spots = [spot(problem, place, *at[place]) for place in _some((place for _, place in shared), problem, MOST_SHARED)]
    spots += [spot(problem, place, [], []) for place in _some(empty, problem, MOST_EMPTY)]
    return Ground(problem, tuple(spots), cpu, host, gpus, price, drawn, at)


def without(known: Ground, gone: Sequence[Instance]) -> Ground:
    """What is left when these, all of one service, are gone."""
    problem = known.problem
    cpu, host = dict(known.cpu_cores), dict(known.host_memory_gib)
    gpus, price, drawn = dict(known.gpus_taken), dict(known.price_taken), known.drawn_w
    names, fresh = {one.service for one in gone}, []
    for place in sorted({one.place for one in gone}):
        before, jobs = known.at[place]
        after = [one for one in before if one.service not in names]
        node = problem.nodes[place[0]]
        for one in before:
            if one.service in names:
                cpu[node.name] += demand_of(problem, one).cpu_cores
                host[node.name] += demand_of(problem, one).host_memory_gib
        for residents, sign in ((before, -1), (after, 1)):
            for tenant, share in shares(problem, residents).items():
                gpus[tenant] += sign * share
                price[tenant] += sign * share * node.price_per_hour
            if problem.policy.power_budget_w is not None:
                drawn += sign * _busy_w(problem, residents, jobs)
        fresh.append(spot(problem, place, after, jobs))
    spots = (*fresh, *(one for one in known.spots if one.place not in {two.place for two in fresh}))
    return replace(
        known, spots=spots, cpu_cores=cpu, host_memory_gib=host, gpus_taken=gpus, price_taken=price, drawn_w=drawn
    )


def _some(places: Iterable[Place], problem: Problem, most: int) -> list[Place]:
    """The first few of each price and kind of node."""
    seen: Counter[tuple[object, ...]] = Counter()
    found = []
    for place in places:
        node = problem.nodes[place[0]]
        kind = (node.gpu_type, node.price_per_hour, node.templates)
        seen[kind] += 1
        if seen[kind] <= most:
            found.append(place)
    return found


def _left(instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> int:
    return 100 - sum(one.sm_percent for one in instances) - sum(job.sm_percent for job in jobs)


def shares(problem: Problem, residents: Sequence[Instance]) -> dict[str, float]:
    """What each tenant takes of one GPU: a dedicated service all of it, once."""
    found: dict[str, float] = defaultdict(float)
    whole = set()
    for one in residents:
        service = problem.services[one.service]
        if not service.is_dedicated:
            found[service.tenant] += one.sm_percent / 100
        elif service.name not in whole:
            whole.add(service.name)
            found[service.tenant] += 1.0
    return found


def spot(problem: Problem, place: Place, instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> Spot:
    """What these leave of a GPU."""
    node = problem.nodes[place[0]]
    gpu_type, policy = problem.gpu_types[node.gpu_type], problem.policy
    clock = instances[0].clock_mhz if instances else gpu_type.top_clock_mhz
    demands = [demand_of(problem, one) for one in instances] + [demand_of_job(problem, job) for job in jobs]
    sms = [one.sm_percent for one in instances] + [job.sm_percent for job in jobs]
    pressures = [value_at(demand.pressure, sm) for demand, sm in zip(demands, sms, strict=True)]
    total, outside = sum(pressures), outside_of(policy, 100 - sum(sms))
    ratio = gpu_type.top_clock_mhz / clock
    rows = []
    for number, (demand, own) in enumerate(zip(demands, pressures, strict=True)):
        feels, beside = demand.sensitivity, total - own
        slower = ratio**demand.clock_exponent
        if number < len(instances):
            alone = alone_ms(problem, instances[number]) * slower
            most = _bears(problem, instances[number], alone * (1 + feels * beside) * (1 + feels * outside))
        else:
            alone, most = slower, _may_slow(problem, jobs[number - len(instances)], node)
        rows.append((alone, feels, beside, most))
    return Spot(
        place=place,
        node=node,
        gpu_type=gpu_type,
        is_empty=not sms,
        is_dedicated=any(problem.services[one.service].is_dedicated for one in instances),
        sm_percent=100 - sum(sms),
        memory_gib=gpu_type.memory_gib - sum(one.memory_gib for one in instances) - sum(job.memory_gib for job in jobs),
        clients=policy.clients_per_gpu - len(sms),
        models=Counter(problem.services[one.service].model for one in instances),
        clocks_mhz=(clock,) if sms else gpu_type.clocks_mhz,
        pressure=total,
        busy_w=sum(
            value_at(demand.power_w, sm) * ratio**-demand.power_exponent
            for demand, sm in zip(demands, sms, strict=True)
        ),
        neighbours=np.array(rows, dtype=np.float64) if rows else NOBODY,
    )


def outside_of(policy: Policy, free_sm: float) -> float:
    """Pressure from what others use of a GPU where shares are priced."""
    return policy.share_pressure * free_sm / 100 if policy.pricing == "share" else 0.0


def demand_of(problem: Problem, one: Instance) -> Demand:
    """What an instance takes beside SMs."""
    profile = problem.profile(one.service, one.variant, one.node)
    assert profile
    return profile.demand


def demand_of_job(problem: Problem, placed: PlacedJob) -> Demand:
    """What a job takes beside SMs."""
    return problem.jobs[placed.job].profiles[problem.nodes[placed.node].gpu_type].demand


def alone_ms(problem: Problem, one: Instance) -> float:
    """Exec alone on its GPU, at the highest clock."""
    profile = problem.profile(one.service, one.variant, one.node)
    assert profile
    return value_at(profile.latency_ms[one.batch], one.sm_percent)


def _bears(problem: Problem, one: Instance, now_ms: float) -> float:
    """The longest exec at which it still may carry what it carries."""
    service, policy = problem.services[one.service], problem.policy
    row = limits(service.percentile).loads[one.batch]
    margin = 1 + policy.exec_margin
    most: float = most_exec_ms(
        row, float(one.batch), one.rate_per_second, service.slo_ms, margin, policy.utilization, now_ms
    )
    return most * (1 + 1e-12)


def _may_slow(problem: Problem, placed: PlacedJob, node: Node) -> float:
    """How much slower than alone at the highest clock a job may run and keep its deadline."""
    job, state = problem.jobs[placed.job], problem.state
    if job.deadline is None or state is None or state.now is None:
        return inf
    alone = value_at(job.profiles[node.gpu_type].units_per_second, placed.sm_percent)
    return alone * _seconds(job.deadline, state.now) / job.units * (1 - 1e-9)


def _seconds(deadline: datetime, now: datetime) -> float:
    return max((deadline - now).total_seconds(), 0.0)


def _busy_w(problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> float:
    """Watts above idle, in the mean."""
    found = 0.0
    for one in instances:
        top = problem.type_of(one.node).top_clock_mhz
        demand = demand_of(problem, one)
        load = min(one.rate_per_second * one.exec_ms / one.batch / 1000, 1.0)
        watts = value_at(demand.power_w, one.sm_percent) * (one.clock_mhz / top) ** demand.power_exponent
        found += watts * busy_fraction(one.batch, load)
    clock = instances[0].clock_mhz if instances else None
    for job in jobs:
        demand, top = demand_of_job(problem, job), problem.type_of(job.node).top_clock_mhz
        found += value_at(demand.power_w, job.sm_percent) * ((clock or top) / top) ** demand.power_exponent
    return found
