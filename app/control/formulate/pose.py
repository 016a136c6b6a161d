"""From a snapshot to the problem that solvers answer.

GPUs that cannot be planned on are not in the problem; the others keep the indexes of their nodes. What stands on a
cordoned GPU, on a silent node or on one with other devices than declared stays there: it is taken out of the problem
together with the rate that it carries. What stood on a lost node, a failed or a draining GPU does not stand any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from agents.contract import AssignedInstance
from app.control.domain.snapshot import Correction, DeclaredObject, NodeStatus, Snapshot
from app.control.formulate.min_instances import relax_min_instances
from app.control.formulate.problem import build_problem
from app.control.formulate.question import Question
from app.control.formulate.running import pinned_instances, running_instances
from app.manifests.model import Kind, Manifest
from app.manifests.offline import DeclaredFiles
from solvers.planning.problem import (
    Demand,
    Limit,
    Node,
    Problem,
    Profile,
    ProfileKey,
    RunningState,
    Service,
    gpu_indexes,
)

LEAST_RATE = 0.01  # a service that nobody asks is kept warm all the same
NOTHING_LEFT = 1e-6  # of a rate: below it pinned instances carry all of it


def pose(
    snapshot: Snapshot,
    limits: Mapping[str, Limit] | None = None,
    jobs: Mapping[str, float] | None = None,
) -> Question:
    """The problem of this moment.

    `limits` are what tenants are entitled to now, where that is less than their manifests say; `jobs` those that may be
    placed, with what each has left to do: all that are not finished, if it is not given.
    """
    counts: dict[str, Any] = {one.name: one.spec["gpus"] for one in snapshot.declared if one.kind == "Node"}
    usable = {node: _usable(facts, counts.get(node, 0)) for node, facts in snapshot.nodes.items()}
    usable = {node: gpus for node, gpus in usable.items() if gpus}
    whole = _whole(_WorldIdentity(snapshot.declared), frozenset(usable))
    stays = pinned_instances(snapshot)
    taken = _demands(whole, stays)
    left = _left(whole, snapshot) if jobs is None else jobs
    running_jobs = {one.owner for _, one in stays if one.job}
    problem = replace(
        whole,
        nodes={
            name: _less(node, usable[name], snapshot.nodes[name], taken.get(name, ()))
            for name, node in whole.nodes.items()
        },
        services=dict(_services(whole, snapshot, stays)),
        profiles=_corrected(whole.profiles, snapshot.corrections),
        jobs={
            name: replace(job, units=left[name])
            for name, job in whole.jobs.items()
            if name in left and name not in running_jobs
        },
        limits=whole.limits if limits is None else limits,
        state=RunningState(now=snapshot.at),
    )
    running, placed = running_instances(snapshot.in_force, problem)
    problem = replace(problem, state=RunningState(snapshot.at, running, placed))
    services, short = relax_min_instances(problem)
    return Question(replace(problem, services=services), stays, short)


class _WorldIdentity:
    """What is equal to itself alone: worlds are told apart by who read them, not by looking through them."""

    def __init__(self, declared: tuple[DeclaredObject, ...]) -> None:
        self.declared = declared

    def __hash__(self) -> int:
        return id(self.declared)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WorldIdentity) and self.declared is other.declared


@lru_cache(maxsize=2)
def _whole(world: _WorldIdentity, usable: frozenset[str]) -> Problem:
    """All that is declared, with the nodes that can be planned on. Most cycles ask of the same world again."""
    manifests = [Manifest(Kind(one.kind), one.tenant, one.name, one.spec) for one in world.declared]
    there = (one for one in manifests if one.kind is not Kind.NODE or one.name in usable)
    return build_problem(DeclaredFiles({one.key: one for one in there if one.kind is not Kind.STATE}))


def _services(
    whole: Problem, snapshot: Snapshot, stays: Sequence[tuple[str, AssignedInstance]]
) -> Iterator[tuple[str, Service]]:
    """Every service at the rate to plan for, without what pinned instances carry."""
    carried: dict[str, list[float]] = {}
    for _, instance in stays:
        if instance.service:
            carried.setdefault(instance.owner, []).append(instance.rate_per_second)
    for name, service in whole.services.items():
        expected = snapshot.expected.get(name)
        asked = max(expected.rate_per_second if expected else service.rate_per_second, LEAST_RATE)
        rate = asked - sum(carried.get(name, ()))
        if rate > NOTHING_LEFT * asked:
            least = max(1, service.min_instances - len(carried.get(name, ())))
            yield name, replace(service, rate_per_second=rate, min_instances=least)


def _usable(facts: NodeStatus, gpus: int) -> tuple[int, ...]:
    """The GPUs that may be planned on."""
    if facts.state != "reporting":
        return ()
    out = {*facts.failed_gpus, *facts.cordoned_gpus, *facts.draining_gpus}
    return tuple(index for index in range(gpus) if index not in out) if out else gpu_indexes(gpus)


def _less(node: Node, gpus: tuple[int, ...], facts: NodeStatus, taken: Sequence[Demand]) -> Node:
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


def _demands(problem: Problem, stays: Sequence[tuple[str, AssignedInstance]]) -> dict[str, list[Demand]]:
    """What pinned instances take of their nodes."""
    found: dict[str, list[Demand]] = {}
    for node, one in stays:
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
