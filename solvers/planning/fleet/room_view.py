"""Shows GPUs with room to compiled loops: what is free of each, and how much slower what runs there may become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from solvers.latency import busy_fraction
from solvers.planning.fleet.grids import Floats, Ints, read_loads
from solvers.planning.fleet.kernels import most_exec_ms
from solvers.planning.judge.readings import JobResident, JudgedGpu, Resident, slow_down, watts
from solvers.planning.pressures import Pressure, Pressures, slow_each
from solvers.planning.problem import GpuType, Instance, Node, Place, Problem

NOBODY = np.zeros((0, 4), np.complex128)


@dataclass(frozen=True, eq=False)
class RoomView:
    """GPUs of a fleet by row: one on which something runs, or idle ones that are alike."""

    places: tuple[tuple[Place, ...], ...]
    numbers: Ints  # of the first GPU of each row, as FleetRooms counts them; 0 of an idle one
    nodes: tuple[Node, ...]  # of the first
    types: tuple[GpuType, ...]  # with the caps of watts
    clocks_mhz: tuple[tuple[float, ...], ...]  # at which an instance may run there
    is_idle: tuple[bool, ...]
    sm_percent: Ints  # free, as what follows
    memory_gib: Floats
    watts: Floats  # up to maxW
    pressure: Pressures  # of all that runs there
    first: Ints  # [row] -> its first neighbour, and the end
    neighbours: Pressures  # [resident, (exec alone at its clock, sensitivity, the others' pressure, longest exec)]
    price_per_hour: Floats

    @classmethod
    def idle(cls, rows: Sequence[tuple[Node, GpuType, Sequence[Place]]]) -> RoomView:
        """Returns a view of GPUs as if nothing ran on them: each row is some that are alike, and their type."""
        nodes, types = tuple(node for node, _, _ in rows), tuple(kind for _, kind, _ in rows)
        count = len(rows)
        return cls(
            tuple(tuple(places) for _, _, places in rows), np.zeros(count, dtype=np.int64), nodes, types,
            tuple(kind.clocks_mhz for kind in types), (True,) * count, np.full(count, 100, dtype=np.int64),
            np.array([kind.memory_gib for kind in types], dtype=np.float64),
            np.array([kind.max_w - kind.idle_w for kind in types], dtype=np.float64), np.zeros(count, np.complex128),
            *stack([NOBODY] * count), np.array([node.price_per_hour for node in nodes], dtype=np.float64),
        )  # fmt: skip

    def pick(self, rows: Ints) -> RoomView:
        """Returns some of the rows."""
        some = rows.tolist()
        parts = [self.neighbours[self.first[row] : self.first[row + 1]] for row in some]
        return RoomView(
            tuple(self.places[row] for row in some),
            self.numbers[rows],
            tuple(self.nodes[row] for row in some),
            tuple(self.types[row] for row in some),
            tuple(self.clocks_mhz[row] for row in some),
            tuple(self.is_idle[row] for row in some),
            self.sm_percent[rows], self.memory_gib[rows], self.watts[rows], self.pressure[rows],
            *stack(parts), self.price_per_hour[rows],
        )  # fmt: skip

    def without(self, places: set[Place]) -> RoomView:
        """Returns the rows but for some GPUs on which something runs."""
        return self.pick(np.array([row for row, some in enumerate(self.places) if some[0] not in places], np.int64))


def stack(parts: Sequence[Pressures]) -> tuple[Ints, Pressures]:
    """Returns where the neighbours of each row begin, and all of them."""
    return np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64), np.concatenate([NOBODY, *parts])


def list_neighbours(problem: Problem, gpu: JudgedGpu) -> Pressures:
    """Returns what runs on a GPU, and the longest exec at which each carries its rate or meets its deadline."""
    slow_down(gpu, problem.policy)
    lines: list[Resident | JobResident] = [*gpu.residents, *gpu.jobs]
    total, ratio = sum((line.pressure for line in lines), 0j), gpu.type.top_clock_mhz / gpu.clock_mhz
    rows: list[tuple[float, Pressure, Pressure, float]] = []
    for line in lines:
        feels, slower = line.demand.sensitivity, ratio**line.demand.clock_exponent
        if isinstance(line, Resident):
            alone = (line.alone_ms or 0.0) * slower
            most = _bears(problem, line.instance, line.exec_ms or 0.0)
        else:
            alone, most = slower, _may_slow(problem, line)
        rows.append((alone, feels, total - line.pressure, most))
    return np.array(rows, dtype=np.complex128).reshape(-1, 4)


def is_borne(problem: Problem, gpu: JudgedGpu, free_sm: float) -> bool:
    """Returns whether what runs there bears it as it is: where shares are priced, strangers on spare SMs slow it."""
    policy = problem.policy
    if policy.pricing != "share":
        return True
    outside = policy.share_pressure * free_sm / 100
    alone, feels, beside, most = list_neighbours(problem, gpu).T
    now = alone.real * (1 + slow_each(feels, beside)) * (1 + np.maximum(feels.real, feels.imag) * outside)
    longest = [_bears(problem, line.instance, 0.0) for line in gpu.residents]
    return bool((now <= np.array([*longest, *most.real[len(longest) :]]) * (1 + 1e-7)).all())


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


def mean_w(gpu: JudgedGpu) -> float:
    """Returns the mean watts above idle of all that runs on a GPU; its jobs know its clock."""
    total = 0.0
    for line in gpu.residents:
        instance = line.instance
        load = min(instance.rate_per_second * instance.exec_ms / instance.batch / 1000, 1.0)
        total += watts(line, gpu) * busy_fraction(instance.batch, load)
    return total + sum(watts(job, gpu) for job in gpu.jobs)
