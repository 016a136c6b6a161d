"""Computes what a plan leaves of single GPUs: room, and how much slower what runs there may become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from solvers.planning.grids import Floats, Ints, read_loads
from solvers.planning.judge.readings import JobResident, JudgedGpu, Resident, slow_down, watts
from solvers.planning.kernels import most_exec_ms
from solvers.planning.problem import GpuType, Instance, Node, Place, Policy, Problem

NOBODY = np.zeros((0, 4))


@dataclass(frozen=True, slots=True)
class FreeGpu:
    """The rest of a GPU, or of each of several empty GPUs that differ by their node's room alone.

    Clocks are those of its type, or the one at which something runs there.
    """

    places: tuple[Place, ...]
    node: Node  # of the first
    gpu_type: GpuType
    is_empty: bool
    is_dedicated: bool  # to a service that runs there
    sm_percent: int
    memory_gib: float
    residents: int  # instances and jobs
    models: Mapping[str, int]
    clocks_mhz: tuple[float, ...]
    pressure: float
    busy_w: float  # of all that runs there, at once
    neighbours: Floats  # [resident, (exec alone at its clock, sensitivity, the others' pressure, longest exec)]


@dataclass(frozen=True, eq=False)
class GpuGroup:
    """Free GPUs, and the arrays that loops read of them."""

    gpus: tuple[FreeGpu, ...]
    sm_percent: Ints
    memory_gib: Floats
    watts: Floats  # up to maxW
    pressure: Floats
    first: Ints  # [GPU] -> its first neighbour, and the end
    neighbours: Floats
    price_per_hour: Floats


def gpu_group(gpus: Sequence[FreeGpu]) -> GpuGroup:
    """Groups free GPUs for the loops."""
    rows = [gpu.neighbours for gpu in gpus]
    return GpuGroup(
        tuple(gpus),
        np.array([gpu.sm_percent for gpu in gpus], dtype=np.int64),
        np.array([gpu.memory_gib for gpu in gpus], dtype=np.float64),
        np.array([gpu.gpu_type.max_w - gpu.gpu_type.idle_w - gpu.busy_w for gpu in gpus], dtype=np.float64),
        np.array([gpu.pressure for gpu in gpus], dtype=np.float64),
        np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64),
        np.concatenate([NOBODY, *rows]),
        np.array([gpu.node.price_per_hour for gpu in gpus], dtype=np.float64),
    )


def empty_gpu(problem: Problem, node: Node, places: Sequence[Place]) -> FreeGpu:
    """Returns empty GPUs of nodes that are alike."""
    kind = node.type_at(places[0][1], problem.gpu_types[node.gpu_type])
    clocks = kind.clocks_mhz
    return FreeGpu(tuple(places), node, kind, True, False, 100, kind.memory_gib, 0, {}, clocks, 0.0, 0.0, NOBODY)


def used_gpu(problem: Problem, gpu: JudgedGpu) -> FreeGpu:
    """Returns what is left of a GPU on which something runs."""
    slow_down(gpu, problem.policy)
    lines: list[Resident | JobResident] = [*gpu.residents, *gpu.jobs]
    total, ratio = sum(line.pressure for line in lines), gpu.type.top_clock_mhz / gpu.clock_mhz
    rows = []
    for line in lines:
        feels, slower = line.demand.sensitivity, ratio**line.demand.clock_exponent
        if isinstance(line, Resident):
            alone = (line.alone_ms or 0.0) * slower
            most = _bears(problem, line.instance, line.exec_ms or 0.0)
        else:
            alone, most = slower, _may_slow(problem, line)
        rows.append((alone, feels, total - line.pressure, most))
    return FreeGpu(
        places=((gpu.node.name, gpu.index),),
        node=gpu.node,
        gpu_type=gpu.type,
        is_empty=False,
        is_dedicated=any(problem.services[line.instance.service].is_dedicated for line in gpu.residents),
        sm_percent=100 - int(gpu.sm_percent),
        memory_gib=gpu.type.memory_gib
        - sum(line.instance.memory_gib for line in gpu.residents)
        - sum(line.placed.memory_gib for line in gpu.jobs),
        residents=len(lines),
        models=Counter(problem.services[line.instance.service].model for line in gpu.residents),
        clocks_mhz=(gpu.clock_mhz,),
        pressure=total,
        busy_w=sum(watts(line, gpu) for line in lines),
        neighbours=np.array(rows, dtype=np.float64),
    )


def is_borne(problem: Problem, gpu: FreeGpu, instances: Sequence[Instance]) -> bool:
    """Returns whether what runs there bears it as it is: where shares are priced, strangers on spare SMs slow it."""
    outside = outside_of(problem.policy, gpu.sm_percent)
    alone, feels, beside, most = gpu.neighbours.T
    now = alone * (1 + feels * beside) * (1 + feels * outside)
    longest = [_bears(problem, instance, 0.0) for instance in instances]
    return bool((now <= np.array([*longest, *most[len(longest) :]]) * (1 + 1e-7)).all())


def outside_of(policy: Policy, free_sm: float) -> float:
    """Returns the pressure of strangers on spare SMs, where shares are priced."""
    return policy.share_pressure * free_sm / 100 if policy.pricing == "share" else 0.0


def _bears(problem: Problem, instance: Instance, now_ms: float) -> float:
    """Returns the longest exec at which an instance may still carry its rate, at least `now_ms`."""
    service, policy = problem.services[instance.service], problem.policy
    (row,) = read_loads(service, policy, np.array([instance.batch]))
    margin, batch = 1 + policy.exec_margin, float(instance.batch)
    most: float = most_exec_ms(row, batch, instance.rate_per_second, service.slo_ms, margin, policy.utilization, now_ms)
    return most * (1 + 1e-12)


def _may_slow(problem: Problem, line: JobResident) -> float:
    """Returns how much slower than alone at the highest clock a job may run and keep its deadline."""
    job, state = problem.jobs[line.placed.job], problem.state
    if job.deadline is None or state is None or state.now is None:
        return inf
    left_seconds = max((job.deadline - state.now).total_seconds(), 0.0)
    return (line.alone_per_second or 0.0) * left_seconds / job.units * (1 - 1e-9)
