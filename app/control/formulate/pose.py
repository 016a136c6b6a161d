"""Turns a snapshot into the question that the solver answers.

GPUs that cannot be planned on are not in the problem; the others keep the indexes of their nodes. Instances on a
cordoned or resting GPU, on a silent node or on a node with other devices than declared stay there: they are taken out
of the problem together with the rate that they carry. Instances on a lost node, a failed or a draining GPU count as
gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from agents.contract.assignments import AssignedInstance
from app.control.domain.corrected import correct_profile
from app.control.domain.policy import policy_spec
from app.control.domain.snapshot import Correction, DeclaredObject, NodeStatus, Snapshot
from app.control.domain.specs import gpu_count
from app.control.formulate.availability import relax_availability
from app.control.formulate.language import set_believed_lengths
from app.control.formulate.min_instances import relax_min_instances
from app.control.formulate.objective import count_by_share, intensity_since
from app.control.formulate.own_runtimes import encode_job_runtimes, encode_runtimes, find_offered
from app.control.formulate.problem import build_problem
from app.control.formulate.question import SMALL_LACK_SHARE, Question
from app.control.formulate.reserved_watts import lower_caps
from app.control.formulate.running import list_pinned_instances, list_swapped_jobs, running_instances
from app.manifests.model import Kind, Manifest
from app.manifests.offline import DeclaredFiles
from app.manifests.uncertain import MEAN_QUANTILE
from solvers.planning.plan import list_unserved
from solvers.planning.problem import (
    Demand,
    Instance,
    Job,
    Node,
    PlacedJob,
    Problem,
    Profile,
    ProfileKey,
    RunningState,
    Service,
    gpu_indexes,
)

LEAST_RATE_PER_SECOND = 0.01  # a service without requests is kept warm all the same
CARRIED_SHARE = 1e-6  # of a rate: if no more is left, pinned instances carry all of it


def pose(snapshot: Snapshot, jobs: Mapping[str, float] | None = None) -> Question:
    """Returns the problem of this moment.

    `jobs` gives the remaining work of each job that may be placed; without it these are all jobs that are not finished.
    """
    pinned = list_pinned_instances(snapshot)
    usable = _leave_out_whole(_usable_gpus(snapshot), pinned)
    whole = _world(snapshot, usable)
    taken = _demands(whole, pinned)
    units_left = _units_left(whole, snapshot) if jobs is None else jobs
    running_jobs = {instance.owner for _, instance in pinned if instance.job}
    own = encode_runtimes({manifest.name: manifest.spec for manifest in snapshot.declared if manifest.kind == "Model"})
    own |= encode_job_runtimes(
        {manifest.full_name: manifest.spec for manifest in snapshot.declared if manifest.kind == "Job"}
    )
    paid = {node for node, instance in pinned if instance.service}
    problem = replace(
        whole,
        nodes={
            name: lower_caps(
                _bill(_less(node, usable[name], snapshot.nodes[name], taken.get(name, ()), own), node, name in paid),
                whole.gpu_types[node.gpu_type],
                snapshot.nodes[name],
            )
            for name, node in whole.nodes.items()
        },
        services=dict(_services(whole, snapshot, pinned)),
        profiles=_correct(whole.profiles, snapshot.corrections),
        jobs={
            name: replace(job, units=units_left[name])
            for name, job in whole.jobs.items()
            if name in units_left and name not in running_jobs
        },
        state=RunningState(now=snapshot.at),
    )
    running, placed = running_instances(snapshot.in_force, problem)
    paces = {name: job.per_second for name, job in snapshot.jobs.items()} if snapshot.measured else {}
    state = RunningState(
        snapshot.at, running, placed, measured=snapshot.measured, paces=paces,
        swapped=list_swapped_jobs(snapshot.assignments, problem),
    )  # fmt: skip
    problem = replace(problem, jobs=_keep_jobs(problem, running, placed), state=state)
    services, without = relax_availability(problem)
    services, short = relax_min_instances(replace(problem, services=services))
    return Question(replace(problem, services=services), pinned, {**without, **short})


def restore_declared_profiles(problem: Problem, snapshot: Snapshot) -> Problem:
    """Returns the problem without corrections: measurements are compared with what was declared."""
    whole = _world(snapshot, _usable_gpus(snapshot))
    return replace(problem, profiles=whole.profiles)


def mean_profiles(snapshot: Snapshot) -> Mapping[ProfileKey, Profile]:
    """Returns the profiles as declared, of uncertain values the means."""
    return _whole(_WorldIdentity(snapshot.declared), frozenset(_usable_gpus(snapshot)), None, MEAN_QUANTILE).profiles


class _WorldIdentity:
    """A world compared by identity: comparing thousands of manifests would cost more than it saves."""

    def __init__(self, declared: tuple[DeclaredObject, ...]) -> None:
        self.declared = declared

    def __hash__(self) -> int:
        return id(self.declared)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WorldIdentity) and self.declared is other.declared


def _world(snapshot: Snapshot, usable: Collection[str]) -> Problem:
    """Returns the problem of all manifests with the usable nodes, at the carbon intensity of the snapshot's time."""
    since = intensity_since(policy_spec(snapshot.declared), snapshot.at)
    return _whole(_WorldIdentity(snapshot.declared), frozenset(usable), since)


@lru_cache(maxsize=4)
def _whole(
    world: _WorldIdentity, usable: frozenset[str], now: datetime | None, quantile: float | None = None
) -> Problem:
    """Returns the problem of all manifests with the usable nodes. Most cycles ask for the same world again."""
    manifests = [Manifest(Kind(item.kind), item.tenant, item.name, item.spec) for item in world.declared]
    there = (item for item in manifests if item.kind is not Kind.NODE or item.name in usable)
    world_there = DeclaredFiles({item.key: item for item in there if item.kind is not Kind.STATE})
    return build_problem(world_there, quantile, now=now)


def _services(
    whole: Problem, snapshot: Snapshot, pinned: Sequence[tuple[str, AssignedInstance]]
) -> Iterator[tuple[str, Service]]:
    """Yields every service at the rate to plan for, less the rate that pinned instances carry."""
    carried: dict[str, list[float]] = {}
    for _, instance in pinned:
        if instance.service:
            carried.setdefault(instance.owner, []).append(instance.rate_per_second)
    for name, service in whole.services.items():
        expected = snapshot.expected.get(name)
        load = max(expected.rate_per_second if expected else service.rate_per_second, LEAST_RATE_PER_SECOND)
        rate = load - sum(carried.get(name, ()))
        if rate > CARRIED_SHARE * load:
            least = max(1, service.min_instances - len(carried.get(name, ())))
            variation = max(service.variation, expected.variation if expected else 0.0)
            tokens = set_believed_lengths(service.tokens, expected) if service.tokens and expected else service.tokens
            posed = replace(service, rate_per_second=rate, min_instances=least, variation=variation, tokens=tokens)
            yield name, posed if service.unserved_weight == 1.0 else count_by_share(posed)


def _usable_gpus(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """Returns, by node, the GPUs that may be planned on; nodes without any are left out."""
    counts = {item.name: gpu_count(item.spec) for item in snapshot.declared if item.kind == "Node"}
    usable = {node: _usable(facts, counts.get(node, 0)) for node, facts in snapshot.nodes.items()}
    return {node: gpus for node, gpus in usable.items() if gpus}


def _leave_out_whole(
    usable: Mapping[str, tuple[int, ...]], pinned: Sequence[tuple[str, AssignedInstance]]
) -> dict[str, tuple[int, ...]]:
    """Returns the usable GPUs without those that an instance holds whole that stays for another of its GPUs."""
    held = {(node, gpu) for node, instance in pinned if instance.is_wide for gpu in instance.all_gpus}
    if not held:
        return dict(usable)
    left = {node: tuple(gpu for gpu in gpus if (node, gpu) not in held) for node, gpus in usable.items()}
    return {node: gpus for node, gpus in left.items() if gpus}


def _keep_jobs(
    problem: Problem, running: Sequence[Instance], placed: Sequence[PlacedJob]
) -> Mapping[str, Job]:  # fmt: skip
    """Returns the jobs; one that runs on several GPUs gives them up only while a service lacks capacity.

    Nothing runs beside it, so that a search that did not leave it alone would stop it for any cheaper plan.
    """
    wide = {line.job for line in placed if line.gpus}
    rates = {name: service.rate_per_second for name, service in problem.services.items()}
    if not wide or any(
        rest.rate_per_second >= SMALL_LACK_SHARE * rates[rest.service] for rest in list_unserved(problem, running)
    ):
        return problem.jobs
    return {name: replace(job, is_preemptible=False) if name in wide else job for name, job in problem.jobs.items()}


def _usable(facts: NodeStatus, gpus: int) -> tuple[int, ...]:
    """Returns the GPUs that may be planned on."""
    if facts.state != "reporting":
        return ()
    out = facts.closed_gpus
    return tuple(index for index in range(gpus) if index not in out) if out else gpu_indexes(gpus)


def _less(
    node: Node, gpus: tuple[int, ...], facts: NodeStatus, taken: Sequence[Demand], own: Mapping[str, bytes]
) -> Node:
    """Returns the node with the resources that pinned instances leave."""
    return replace(
        node,
        gpus=gpus,
        cpu_cores=max(0.0, node.cpu_cores - sum(demand.cpu_cores for demand in taken)),
        host_memory_gib=max(0.0, node.host_memory_gib - sum(demand.host_memory_gib for demand in taken)),
        templates=find_offered(node.templates, facts, own),
    )


def _bill(less: Node, whole: Node, is_paid: bool) -> Node:
    """Returns what is left of a node with its price, which stays the same where it is billed whole.

    The GPUs that are left then have a larger share of it; or they cost nothing, where a service stays on one that is
    left out and pays for all of the node.
    """
    if whole.pricing != "node":
        return less
    if is_paid:
        return replace(less, pricing="paid")
    return replace(less, price_per_hour=whole.price_per_hour * whole.gpu_count / less.gpu_count)


def _demands(problem: Problem, pinned: Sequence[tuple[str, AssignedInstance]]) -> dict[str, list[Demand]]:
    """Returns, by node, the demands of its pinned instances."""
    found: dict[str, list[Demand]] = {}
    for node, instance in pinned:
        if (
            node in problem.nodes
            and (key := (instance.model, instance.variant, problem.nodes[node].gpu_type)) in problem.profiles
        ):
            found.setdefault(node, []).append(problem.profiles[key].demand)
    return found


def _units_left(problem: Problem, snapshot: Snapshot) -> dict[str, float]:
    """Returns the remaining work of every job that is not finished."""
    facts = snapshot.jobs
    return {
        name: max(1.0, job.units - facts[name].done) if name in facts else job.units
        for name, job in problem.jobs.items()
        if name not in facts or facts[name].phase not in ("finished", "failed")
    }


def _correct(
    profiles: Mapping[ProfileKey, Profile], corrections: Mapping[str, Correction]
) -> Mapping[ProfileKey, Profile]:
    keys = [key for key in profiles if "/".join(key) in corrections] if corrections else []
    return {**profiles, **{key: correct_profile(profiles[key], corrections["/".join(key)]) for key in keys}}
