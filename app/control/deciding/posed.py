"""From a snapshot to the problem that solvers answer, and from their answer back to the fleet as it is.

GPUs that cannot be planned on are not in the problem: it counts those of a node that are left from 0. What stands on a
cordoned GPU, on a silent node or on one with other devices than declared stays there: it is taken out of the problem
together with the rate that it carries. What stood on a lost node, a failed or a draining GPU does not stand any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from agents.contract import AssignedInstance
from app.control.deciding.formulate import formulate
from app.control.deciding.least import attainable
from app.control.deciding.stands import as_it_stands
from app.control.desired import Desired
from app.control.snapshot import Correction, Declared, NodeFacts, Snapshot
from app.manifests.model import Kind, Manifest
from app.manifests.offline import World
from app.store.pieces import hashed
from solvers.planning.judge import Verdict, judge
from solvers.planning.plan import Plan
from solvers.planning.problem import (
    Demand,
    Instance,
    Limit,
    Node,
    PlacedJob,
    Problem,
    Profile,
    ProfileKey,
    Service,
    State,
)
from solvers.planning.promise import keep

LEAST_RATE = 0.01  # a service that nobody asks is kept warm all the same
NOTHING_LEFT = 1e-6  # of a rate: below it pinned instances carry all of it


@dataclass(frozen=True)
class Posed:
    """A problem, and what of the fleet it is about."""

    problem: Problem
    gpus: Mapping[str, tuple[int, ...]]  # by node: the index of each of the problem's GPUs
    pinned: tuple[tuple[str, AssignedInstance], ...] = ()  # (node, instance): as they are, whatever is planned
    short: Mapping[str, str] = field(default_factory=dict)  # services that ask for more GPUs than are there: in words

    @cached_property
    def question(self) -> bytes:
        """What makes two problems the same question: not the time of day, nor how far jobs are and how they press."""
        problem = self.problem
        state = replace(problem.state, now=None) if problem.state else None
        nodes = [(replace(node, templates=None), sorted(node.templates or ())) for node in problem.nodes.values()]
        rest = replace(problem, state=None, nodes={}, profiles={}, services={}, jobs={})
        jobs = [replace(job, units=0.0, priority=0) for job in problem.jobs.values()]
        named = [*problem.profiles.values(), *problem.services.values(), *jobs]
        return hashed(msgspec.json.encode((rest, state, nodes, named, self.gpus, self.pinned)))

    @cached_property
    def stands(self) -> Plan:
        """The plan in force."""
        return as_it_stands(self.problem)

    @cached_property
    def verdict(self) -> Verdict:
        """Of the judge, on the plan in force."""
        return judge(self.problem, self.stands, simulate=False, keeps=keep)

    @property
    def falls_short(self) -> bool:
        """Whether the plan in force leaves something unserved, or breaks a rule by now: a promise, mostly."""
        return bool(self.stands.unserved) or not self.verdict.is_right

    def real(self, plan: Plan) -> Plan:
        """The plan on the indexes that the nodes themselves use."""
        index = {node: gpus for node, gpus in self.gpus.items() if gpus != tuple(range(len(gpus)))}
        if not index:
            return plan
        return replace(
            plan,
            instances=tuple(
                replace(one, gpu=index[one.node][one.gpu]) if one.node in index else one for one in plan.instances
            ),
            jobs=tuple(replace(one, gpu=index[one.node][one.gpu]) if one.node in index else one for one in plan.jobs),
        )


def pose(
    snapshot: Snapshot,
    limits: Mapping[str, Limit] | None = None,
    jobs: Mapping[str, float] | None = None,
) -> Posed:
    """The problem of this moment.

    `limits` are what tenants are entitled to now, where that is less than their manifests say; `jobs` those that may be
    placed, with what each has left to do: all that are not finished, if it is not given.
    """
    counts: dict[str, Any] = {one.name: one.spec["gpus"] for one in snapshot.declared if one.kind == "Node"}
    usable = {node: _usable(facts, counts.get(node, 0)) for node, facts in snapshot.nodes.items()}
    usable = {node: gpus for node, gpus in usable.items() if gpus}
    whole = _whole(_Same(snapshot.declared), frozenset(usable))
    pinned = _pinned(snapshot)
    taken = _demands(whole, pinned)
    left = _left(whole, snapshot) if jobs is None else jobs
    running_jobs = {f"{one.tenant}/{one.job}" for _, one in pinned if one.job}
    problem = replace(
        whole,
        nodes={
            name: _less(node, len(usable[name]), snapshot.nodes[name], taken.get(name, ()))
            for name, node in whole.nodes.items()
        },
        services=dict(_services(whole, snapshot, pinned)),
        profiles=_corrected(whole.profiles, snapshot.corrections),
        jobs={
            name: replace(job, units=left[name])
            for name, job in whole.jobs.items()
            if name in left and name not in running_jobs
        },
        limits=whole.limits if limits is None else limits,
        state=State(now=snapshot.at),
    )
    running, placed = standing(snapshot.standing, problem, usable)
    problem = replace(problem, state=State(snapshot.at, running, placed))
    services, short = attainable(problem)
    return Posed(replace(problem, services=services), usable, pinned, short)


class _Same:
    """What is equal to itself alone: worlds are told apart by who read them, not by looking through them."""

    def __init__(self, declared: tuple[Declared, ...]) -> None:
        self.declared = declared

    def __hash__(self) -> int:
        return id(self.declared)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.declared is other.declared


@lru_cache(maxsize=2)
def _whole(world: _Same, usable: frozenset[str]) -> Problem:
    """All that is declared, with the nodes that can be planned on. Most cycles ask of the same world again."""
    manifests = [Manifest(Kind(one.kind), one.tenant, one.name, one.spec) for one in world.declared]
    there = (one for one in manifests if one.kind is not Kind.NODE or one.name in usable)
    return formulate(World({one.key: one for one in there if one.kind is not Kind.STATE}))


def staying(nodes: Mapping[str, NodeFacts]) -> Mapping[str, NodeFacts]:
    """Nodes of which nothing has to leave: what stands where GPUs are drained counts, as where they are cordoned."""
    return {
        name: replace(facts, cordoned_gpus=(*facts.cordoned_gpus, *facts.draining_gpus), draining_gpus=())
        for name, facts in nodes.items()
    }


def _services(
    whole: Problem, snapshot: Snapshot, pinned: Sequence[tuple[str, AssignedInstance]]
) -> Iterator[tuple[str, Service]]:
    """Every service at the rate to plan for, without what pinned instances carry."""
    carried: dict[str, list[float]] = {}
    for _, one in pinned:
        carried.setdefault(f"{one.tenant}/{one.service}", []).append(one.rate_per_second)
    for name, service in whole.services.items():
        expected = snapshot.expected.get(name)
        asked = max(expected.rate_per_second if expected else service.rate_per_second, LEAST_RATE)
        rate = asked - sum(carried.get(name, ()))
        if rate > NOTHING_LEFT * asked:
            least = max(1, service.min_instances - len(carried.get(name, ())))
            yield name, replace(service, rate_per_second=rate, min_instances=least)


def standing(
    desired: Desired, problem: Problem, usable: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[Instance, ...], tuple[PlacedJob, ...]]:
    """What the plan in force wants of the GPUs that the problem has, in the problem's words."""
    running, jobs = [], []
    for node, wanted in sorted(desired.items()):
        if node not in problem.nodes:
            continue
        clocks = {gpu.index: gpu.clock_mhz.planned for gpu in wanted.gpus if gpu.clock_mhz}
        for one in wanted.instances:
            if one.gpu not in usable[node]:
                continue
            gpu = usable[node].index(one.gpu)
            name = f"{one.tenant}/{one.service or one.job}"
            if one.job and name in problem.jobs and problem.nodes[node].gpu_type in problem.jobs[name].profiles:
                jobs.append(PlacedJob(name, node, gpu, round(one.sm_percent), one.memory_gib))
            elif one.service and _still_fits(one, problem.services.get(name), problem, node):
                clock_mhz = clocks.get(one.gpu, problem.type_of(node).top_clock_mhz)
                running.append(_instance(one, name, node, gpu, clock_mhz))
    return tuple(running), tuple(jobs)


def _instance(one: AssignedInstance, name: str, node: str, gpu: int, clock_mhz: float) -> Instance:
    return Instance(
        id=one.id,
        service=name,
        node=node,
        gpu=gpu,
        variant=one.variant,
        batch=int(one.batch.planned) if one.batch else 1,
        batch_timeout_ms=one.batch_timeout_ms,
        sm_percent=round(one.sm_percent),
        memory_gib=one.memory_gib,
        clock_mhz=clock_mhz,
        rate_per_second=one.rate_per_second,
    )


def _still_fits(one: AssignedInstance, service: Service | None, problem: Problem, node: str) -> bool:
    """Whether an instance is one that the problem could have: a changed manifest may have made it a stranger."""
    if service is None or one.variant not in service.variants or service.model != one.model:
        return False
    profile = problem.profile(service.name, one.variant, node)
    return profile is not None and one.batch is not None and int(one.batch.planned) in profile.latency_ms


def _usable(facts: NodeFacts, gpus: int) -> tuple[int, ...]:
    """The GPUs that may be planned on."""
    if facts.state != "reporting":
        return ()
    out = {*facts.failed_gpus, *facts.cordoned_gpus, *facts.draining_gpus}
    return tuple(index for index in range(gpus) if index not in out)


def _pinned(snapshot: Snapshot) -> tuple[tuple[str, AssignedInstance], ...]:
    """What stands where nothing new comes and nothing is lost either."""
    found = []
    owners = {(one.kind, one.tenant, one.name) for one in snapshot.declared if one.kind in ("Service", "Job")}
    for node, wanted in sorted(snapshot.standing.items()):
        facts = snapshot.nodes.get(node)
        if facts is None or facts.state in ("lost", "never"):
            continue
        gone = {*facts.failed_gpus, *facts.draining_gpus}
        kept = [one for one in wanted.instances if one.gpu not in gone and _owner(one) in owners]
        found += [(node, one) for one in kept if facts.state != "reporting" or one.gpu in facts.cordoned_gpus]
    return tuple(found)


def _owner(one: AssignedInstance) -> tuple[str, str, str]:
    return ("Service", one.tenant, one.service) if one.service else ("Job", one.tenant, one.job)


def _less(node: Node, gpus: int, facts: NodeFacts, taken: Sequence[Demand]) -> Node:
    """The node without what is pinned there."""
    offered = None if facts.templates is None else frozenset(facts.templates)
    if offered is not None and node.templates is not None:
        offered &= node.templates
    return replace(
        node,
        gpus=gpus,
        cpu_cores=max(0.0, node.cpu_cores - sum(one.cpu_cores for one in taken)),
        host_memory_gib=max(0.0, node.host_memory_gib - sum(one.host_memory_gib for one in taken)),
        templates=node.templates if offered is None else offered,
    )


def _demands(problem: Problem, pinned: Sequence[tuple[str, AssignedInstance]]) -> dict[str, list[Demand]]:
    """What pinned instances take of their nodes."""
    found: dict[str, list[Demand]] = {}
    for node, one in pinned:
        if (
            node in problem.nodes
            and (key := (one.model, one.variant, problem.nodes[node].gpu_type)) in problem.profiles
        ):
            found.setdefault(node, []).append(problem.profiles[key].demand)
    return found


def _left(problem: Problem, snapshot: Snapshot) -> dict[str, float]:
    """What every job that is not finished has left to do."""
    facts = snapshot.jobs
    return {
        name: max(1.0, job.units - facts[name].done) if name in facts else job.units
        for name, job in problem.jobs.items()
        if name not in facts or facts[name].phase not in ("finished", "failed")
    }


def _corrected(
    profiles: Mapping[ProfileKey, Profile], corrections: Mapping[str, Correction]
) -> Mapping[ProfileKey, Profile]:
    keys = [key for key in profiles if "/".join(key) in corrections] if corrections else []
    return {**profiles, **{key: _measured(profiles[key], corrections["/".join(key)]) for key in keys}}


def _measured(profile: Profile, found: Correction) -> Profile:
    latency = {
        batch: tuple((sm, value * found.latency_factor) for sm, value in curve)
        for batch, curve in profile.latency_ms.items()
    }
    memory = {batch: value * found.memory_factor for batch, value in profile.memory_gib.items()}
    power = tuple((sm, value * found.power_factor) for sm, value in profile.demand.power_w)
    return replace(profile, latency_ms=latency, memory_gib=memory, demand=replace(profile.demand, power_w=power))
