"""What a plan leaves of the whole fleet: GPUs with room, and what nodes, tenants and the power budget still give."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from solvers.latency import busy_fraction
from solvers.planning.explain.gpu_groups import (
    GpuGroup,
    Place,
    demand_of,
    demand_of_job,
    empty,
    is_borne,
    lot,
    shares,
    taken,
)
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Instance, Node, PlacedJob, Problem

MOST_SHARED = 32  # GPUs of one kind that are looked at, those with most SM% left; empty ones count as one
MOST_LOOKED_AT = 512  # of all kinds


@dataclass(frozen=True)
class FreeCapacity:
    """A plan's leavings, for one service more."""

    problem: Problem
    lots: tuple[GpuGroup, ...]
    cpu_cores: Mapping[str, float]  # left of each node
    host_memory_gib: Mapping[str, float]
    gpus_taken: Mapping[str, float]  # by tenant
    price_taken: Mapping[str, float]
    drawn_w: float
    at: Mapping[Place, tuple[Sequence[Instance], Sequence[PlacedJob]]]
    of: Mapping[str, Sequence[Instance]]  # by service
    is_partly_seen: bool = False  # GPUs with room were left out


def ground(problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> FreeCapacity:
    """All that the limits of GPUs, nodes, tenants and the fleet leave beside these."""
    at: dict[Place, tuple[list[Instance], list[PlacedJob]]] = defaultdict(lambda: ([], []))
    of: dict[str, list[Instance]] = defaultdict(list)
    for instance in instances:
        at[instance.place][0].append(instance)
        of[instance.service].append(instance)
    for job in jobs:
        at[job.place][1].append(job)
    cpu = {name: node.cpu_cores for name, node in problem.nodes.items()}
    host = {name: node.host_memory_gib for name, node in problem.nodes.items()}
    gpus: dict[str, float] = defaultdict(float)
    price: dict[str, float] = defaultdict(float)
    drawn = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
    for (name, _), (residents, training) in at.items():
        node = problem.nodes[name]
        demands = [demand_of(problem, one) for one in residents] + [demand_of_job(problem, one) for one in training]
        cpu[name] -= sum(demand.cpu_cores for demand in demands)
        host[name] -= sum(demand.host_memory_gib for demand in demands)
        for tenant, share in shares(problem, residents).items():
            gpus[tenant] += share
            price[tenant] += share * node.price_per_hour
        if problem.policy.power_budget_w is not None:
            drawn += busy_w(problem, residents, training)
    roomiest, is_partly_seen = _roomiest(problem, at)
    spots = [taken(problem, place, *at[place]) for place in roomiest]
    spots += [empty(problem, problem.nodes[places[0][0]], places) for places in _empty(problem, at)]
    return FreeCapacity(problem, (lot(spots),), cpu, host, gpus, price, drawn, dict(at), of, is_partly_seen)


def without(known: FreeCapacity, gone: Sequence[Instance]) -> FreeCapacity | None:
    """What is left when these, all of one service, are gone; None where those beside them do not bear that."""
    problem = known.problem
    cpu, host = dict(known.cpu_cores), dict(known.host_memory_gib)
    gpus, price, drawn = dict(known.gpus_taken), dict(known.price_taken), known.drawn_w
    names, fresh = {one.service for one in gone}, []
    is_shared = problem.policy.pricing == "share"
    places = {one.place for one in gone}
    for place in sorted(places):
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
                drawn += sign * busy_w(problem, residents, jobs)
        fresh.append(taken(problem, place, after, jobs))
        if is_shared and not is_borne(problem, fresh[-1], after):
            return None
    lots = (lot(fresh), *aside(known, places).lots)
    return replace(
        known, lots=lots, cpu_cores=cpu, host_memory_gib=host, gpus_taken=gpus, price_taken=price, drawn_w=drawn
    )


def aside(known: FreeCapacity, places: set[Place]) -> FreeCapacity:
    """The same ground but for some GPUs that something stands on."""
    kept = tuple(lot([one for one in some.spots if one.places[0] not in places]) for some in known.lots)
    return replace(known, lots=kept)


def with_nodes(known: FreeCapacity, fresh: Sequence[Node]) -> FreeCapacity:
    """The ground with these nodes in it, which are alike and of one GPU each."""
    problem = known.problem
    return replace(
        known,
        lots=(*known.lots, lot([empty(problem, fresh[0], [(node.name, node.gpus[0]) for node in fresh])])),
        cpu_cores={**known.cpu_cores, **{node.name: node.cpu_cores for node in fresh}},
        host_memory_gib={**known.host_memory_gib, **{node.name: node.host_memory_gib for node in fresh}},
        drawn_w=known.drawn_w + problem.gpu_types[fresh[0].gpu_type].idle_w * len(fresh),
    )


def kind_of(node: Node) -> tuple[object, ...]:
    """Empty GPUs of one kind differ by their node's room at most."""
    return (node.gpu_type, node.price_per_hour, node.templates)


def _roomiest(
    problem: Problem, at: Mapping[Place, tuple[Sequence[Instance], Sequence[PlacedJob]]]
) -> tuple[list[Place], bool]:
    """GPUs with SM% left beside what runs there: the roomiest few of each kind, and whether there are more."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: list[Place] = []
    is_partly_seen = False
    for left, place in sorted((-_left(*on), place) for place, on in at.items()):
        kind = kind_of(problem.nodes[place[0]])
        seen[kind] += 1
        if left >= 0:
            break
        if seen[kind] <= MOST_SHARED and len(found) < MOST_LOOKED_AT:
            found.append(place)
        else:
            is_partly_seen = True
    return found, is_partly_seen


def _empty(problem: Problem, at: Mapping[Place, object]) -> list[list[Place]]:
    """GPUs that nothing runs on, by kind."""
    found: dict[tuple[object, ...], list[Place]] = defaultdict(list)
    for name in sorted(problem.nodes):
        node = problem.nodes[name]
        free = [(name, index) for index in node.gpus if (name, index) not in at]
        if free:
            found[kind_of(node)] += free
    return list(found.values())


def _left(instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> int:
    return 100 - sum(one.sm_percent for one in instances) - sum(job.sm_percent for job in jobs)


def busy_w(problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob]) -> float:
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
