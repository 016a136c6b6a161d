"""What a plan leaves of single GPUs: room, and how much slower those who stand there may become."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import TypeAlias

import numpy as np

from solvers.latency import limits
from solvers.planning.explain.kernels import most_exec_ms
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Demand, GpuType, Instance, Node, PlacedJob, Policy, Problem
from solvers.planning.search.tables import Floats, Ints

Place: TypeAlias = tuple[str, int]
NOBODY = np.zeros((0, 4))


@dataclass(frozen=True, slots=True)
class FreeGpu:
    """What is left of one GPU, or of each of several empty ones that nothing tells apart but their node's room.

    Clocks are of its type; one that somebody runs at is the only one.
    """

    places: tuple[Place, ...]
    node: Node  # of the first
    gpu_type: GpuType
    is_empty: bool
    is_dedicated: bool  # to a service that stands there
    sm_percent: int
    memory_gib: float
    residents: int  # instances and jobs
    models: Mapping[str, int]
    clocks_mhz: tuple[float, ...]
    pressure: float
    busy_w: float  # of all that runs there, at once
    neighbours: Floats  # [resident, (exec alone at its clock, sensitivity, pressure beside it, longest exec)]


@dataclass(frozen=True, eq=False)
class GpuGroup:
    """Spots, and what loops read of them."""

    spots: tuple[FreeGpu, ...]
    sm_percent: Ints
    memory_gib: Floats
    watts: Floats  # up to maxW
    pressure: Floats
    first: Ints  # [spot] -> its first neighbour; one more at the end
    neighbours: Floats
    price_per_hour: Floats


def lot(spots: Sequence[FreeGpu]) -> GpuGroup:
    """These spots, as loops read them."""
    rows = [spot.neighbours for spot in spots]
    return GpuGroup(
        tuple(spots),
        np.array([spot.sm_percent for spot in spots], dtype=np.int64),
        np.array([spot.memory_gib for spot in spots], dtype=np.float64),
        np.array([spot.gpu_type.max_w - spot.gpu_type.idle_w - spot.busy_w for spot in spots], dtype=np.float64),
        np.array([spot.pressure for spot in spots], dtype=np.float64),
        np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64),
        np.concatenate([NOBODY, *rows]),
        np.array([spot.node.price_per_hour for spot in spots], dtype=np.float64),
    )


def empty(problem: Problem, node: Node, places: Sequence[Place]) -> FreeGpu:
    """GPUs that nothing runs on, of nodes that are alike."""
    kind = problem.gpu_types[node.gpu_type]
    clocks = kind.clocks_mhz
    return FreeGpu(tuple(places), node, kind, True, False, 100, kind.memory_gib, 0, {}, clocks, 0.0, 0.0, NOBODY)


def taken(problem: Problem, place: Place, instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> FreeGpu:
    """What these leave of a GPU."""
    node = problem.nodes[place[0]]
    if not instances and not jobs:
        return empty(problem, node, (place,))
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
    return FreeGpu(
        places=(place,),
        node=node,
        gpu_type=gpu_type,
        is_empty=False,
        is_dedicated=any(problem.services[one.service].is_dedicated for one in instances),
        sm_percent=100 - sum(sms),
        memory_gib=gpu_type.memory_gib - sum(one.memory_gib for one in instances) - sum(job.memory_gib for job in jobs),
        residents=len(sms),
        models=Counter(problem.services[one.service].model for one in instances),
        clocks_mhz=(clock,),
        pressure=total,
        busy_w=sum(
            value_at(demand.power_w, sm) * ratio**-demand.power_exponent
            for demand, sm in zip(demands, sms, strict=True)
        ),
        neighbours=np.array(rows, dtype=np.float64),
    )


def is_borne(problem: Problem, spot: FreeGpu, instances: Sequence[Instance]) -> bool:
    """Whether those who stand there bear it as it is: where shares are priced, room that is left slows them."""
    outside = outside_of(problem.policy, spot.sm_percent)
    alone, feels, beside, most = spot.neighbours.T
    now = alone * (1 + feels * beside) * (1 + feels * outside)
    longest = [_bears(problem, one, 0.0) for one in instances]
    return bool((now <= np.array([*longest, *most[len(longest) :]]) * (1 + 1e-7)).all())


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
    row = limits(service.percentile, [one.batch]).loads[one.batch]
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
