"""Computes what a plan leaves of the fleet: GPUs with room, and what nodes, tenants and the budget of watts allow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from solvers.latency import busy_fraction
from solvers.planning.explain.gpu_groups import GpuGroup, empty_gpu, gpu_group, is_borne, used_gpu
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import JobResident, JudgedGpu, Reader, Resident, slow_down, watts
from solvers.planning.judge.tenants import shares_of
from solvers.planning.problem import Instance, Node, Place, PlacedJob, Problem

MOST_SHARED_GPUS = 32  # examined of a kind, those with most SM% left; empty ones count as one
MOST_LOOKED_AT_GPUS = 512  # of all kinds


@dataclass(frozen=True)
class FreeCapacity:
    """The capacity that a plan leaves for one service more."""

    problem: Problem
    groups: tuple[GpuGroup, ...]
    cpu_cores: Mapping[str, float]  # left of each node
    host_memory_gib: Mapping[str, float]
    gpus_taken: Mapping[str, float]  # by tenant
    price_taken: Mapping[str, float]
    drawn_w: float
    at: Mapping[Place, JudgedGpu]  # those on which something runs
    of: Mapping[str, Sequence[Instance]]  # by service
    is_partly_seen: bool = False  # GPUs with room were left out


def find_free_capacity(
    problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob], reader: Reader | None = None
) -> FreeCapacity:
    """Computes what GPUs, nodes, tenants' limits and the power budget leave besides these."""
    at = gpus_with(problem, instances, jobs, reader)
    of: dict[str, list[Instance]] = defaultdict(list)
    for instance in instances:
        of[instance.service].append(instance)
    idle_w = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
    left = _Left(
        problem,
        {name: node.cpu_cores for name, node in problem.nodes.items()},
        {name: node.host_memory_gib for name, node in problem.nodes.items()},
        idle_w,
    )
    for gpu in at.values():
        left.take(gpu)
    roomiest, is_partly_seen = _roomiest(at)
    gpus = [used_gpu(problem, at[place]) for place in roomiest]
    gpus += [empty_gpu(problem, problem.nodes[places[0][0]], places) for places in _empty(problem, at)]
    return FreeCapacity(
        problem, (gpu_group(gpus),), left.cpu_cores, left.host_memory_gib, left.gpus_taken, left.price_taken,
        left.drawn_w, at, of, is_partly_seen,
    )  # fmt: skip


@dataclass
class _Left:
    """The rest that nodes, tenants and the power budget have, while GPUs are added and removed."""

    problem: Problem
    cpu_cores: dict[str, float]
    host_memory_gib: dict[str, float]
    drawn_w: float
    gpus_taken: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    price_taken: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def take(self, gpu: JudgedGpu) -> None:
        """Subtracts what runs on a GPU."""
        cores = hosted = 0.0
        lines: list[Resident | JobResident] = [*gpu.residents, *gpu.jobs]
        for line in lines:
            cores += line.demand.cpu_cores
            hosted += line.demand.host_memory_gib
        self.cpu_cores[gpu.node.name] -= cores
        self.host_memory_gib[gpu.node.name] -= hosted
        self.charge(gpu, 1)

    def charge(self, gpu: JudgedGpu, sign: int) -> None:
        """Adds a GPU to what tenants and the fleet use; subtracts it if `sign` is -1."""
        for tenant, share in shares_of(gpu).items():
            self.gpus_taken[tenant] += sign * share
            self.price_taken[tenant] += sign * share * gpu.node.price_per_hour
        if self.problem.policy.power_budget_w is not None:
            slow_down(gpu, self.problem.policy)  # gives jobs their clock
            self.drawn_w += sign * busy_w(gpu)


def without_instances(known: FreeCapacity, gone: Sequence[Instance]) -> FreeCapacity | None:
    """Returns what is left without these, all of one service; None if their neighbours do not bear that."""
    problem = known.problem
    left = _Left(
        problem, dict(known.cpu_cores), dict(known.host_memory_gib), known.drawn_w, dict(known.gpus_taken),
        dict(known.price_taken),
    )  # fmt: skip
    names, fresh = {instance.service for instance in gone}, []
    places = sorted({instance.place for instance in gone})
    stay: list[Instance] = []
    for place in places:
        for line in known.at[place].residents:
            if line.instance.service in names:
                left.cpu_cores[place[0]] += line.demand.cpu_cores
                left.host_memory_gib[place[0]] += line.demand.host_memory_gib
            else:
                stay.append(line.instance)
    after = gpus_with(problem, stay, [job.placed for place in places for job in known.at[place].jobs])
    for place in places:
        left.charge(known.at[place], -1)
        gpu = after.get(place)
        if gpu is None:
            fresh.append(empty_gpu(problem, problem.nodes[place[0]], (place,)))
            continue
        left.charge(gpu, 1)
        fresh.append(used_gpu(problem, gpu))
        instances = [line.instance for line in gpu.residents]
        if problem.policy.pricing == "share" and not is_borne(problem, fresh[-1], instances):
            return None
    return replace(
        known,
        groups=(gpu_group(fresh), *without_gpus(known, set(places)).groups),
        cpu_cores=left.cpu_cores,
        host_memory_gib=left.host_memory_gib,
        gpus_taken=left.gpus_taken,
        price_taken=left.price_taken,
        drawn_w=left.drawn_w,
    )


def without_gpus(known: FreeCapacity, places: set[Place]) -> FreeCapacity:
    """Returns the same capacity without some GPUs on which something runs."""
    groups = tuple(gpu_group([gpu for gpu in some.gpus if gpu.places[0] not in places]) for some in known.groups)
    return replace(known, groups=groups)


def without_caps(known: FreeCapacity) -> FreeCapacity:
    """Returns the same capacity as if each GPU could draw all the watts of its type."""
    types = known.problem.gpu_types
    return replace(
        known,
        groups=tuple(
            gpu_group([replace(gpu, gpu_type=types[gpu.node.gpu_type]) for gpu in some.gpus]) for some in known.groups
        ),
    )


def with_nodes(known: FreeCapacity, fresh: Sequence[Node]) -> FreeCapacity:
    """Returns the capacity with more nodes, which are alike and have one GPU each."""
    problem = known.problem
    added = empty_gpu(problem, fresh[0], [(node.name, node.gpus[0]) for node in fresh])
    return replace(
        known,
        groups=(*known.groups, gpu_group([added])),
        cpu_cores={**known.cpu_cores, **{node.name: node.cpu_cores for node in fresh}},
        host_memory_gib={**known.host_memory_gib, **{node.name: node.host_memory_gib for node in fresh}},
        drawn_w=known.drawn_w + problem.gpu_types[fresh[0].gpu_type].idle_w * len(fresh),
    )


def kind_of(node: Node) -> tuple[object, ...]:
    """Names the kind of a node: empty GPUs of one kind differ by their node's room at most."""
    return (node.gpu_type, node.price_per_hour, node.templates, node.cell)


def _roomiest(at: Mapping[Place, JudgedGpu]) -> tuple[list[Place], bool]:
    """Returns GPUs with SM% left besides what runs there, the roomiest few of each kind, and if there are more."""
    counts: Counter[tuple[object, ...]] = Counter()
    found: list[Place] = []
    is_partly_seen = False
    for taken_sm, place in sorted((gpu.sm_percent, place) for place, gpu in at.items()):
        kind = kind_of(at[place].node)
        counts[kind] += 1
        if taken_sm >= 100:
            break
        if counts[kind] <= MOST_SHARED_GPUS and len(found) < MOST_LOOKED_AT_GPUS:
            found.append(place)
        else:
            is_partly_seen = True
    return found, is_partly_seen


def _empty(problem: Problem, at: Mapping[Place, object]) -> list[list[Place]]:
    """Returns the GPUs on which nothing runs, by kind."""
    found: dict[tuple[object, ...], list[Place]] = defaultdict(list)
    for name in sorted(problem.nodes):
        node = problem.nodes[name]
        for max_w, gpus in node.by_watts(problem.gpu_types[node.gpu_type]):
            free = [(name, index) for index in gpus if (name, index) not in at]
            if free:
                found[*kind_of(node), max_w] += free
    return list(found.values())


def busy_w(gpu: JudgedGpu) -> float:
    """Returns the mean watts above idle of all that runs on a GPU."""
    total = 0.0
    for line in gpu.residents:
        instance = line.instance
        load = min(instance.rate_per_second * instance.exec_ms / instance.batch / 1000, 1.0)
        total += watts(line, gpu) * busy_fraction(instance.batch, load)
    return total + sum(watts(job, gpu) for job in gpu.jobs)
