"""Drains a node or GPU: what can leave does, by a rollout like any other; what cannot is named, with its reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from agents.contract.assignments import AssignedInstance
from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.domain.snapshot import NodeStatus
from app.control.rollout.changes import changes, put_instance
from app.control.rollout.keeping import keep_instances, keep_owners
from app.control.rollout.ordering.finding import order
from app.control.rollout.rules import RolloutRules
from app.store.fleet.cordons import ALL_GPUS, Cordon
from solvers.planning.plan import Unserved
from solvers.planning.problem import Place


@dataclass(frozen=True, slots=True)
class Stays:
    """An instance that cannot leave a draining GPU, and why."""

    instance: str
    owner: str
    node: str
    gpu: int
    reason: str
    message: str
    is_job: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """The progress of the drain of a node or GPU."""

    cordon: Cordon
    remaining: tuple[str, ...]  # the owners of instances that are still there
    is_late: bool
    is_under_way: bool  # a rollout still moves what is there

    @property
    def is_done(self) -> bool:
        return not self.remaining and not self.is_under_way


def draining_gpus(nodes: Mapping[str, NodeStatus]) -> frozenset[Place]:
    """Returns the GPUs that are being drained."""
    return frozenset((name, gpu) for name, facts in nodes.items() for gpu in facts.draining_gpus)


def leaving(decision: Decision, in_force: Desired, places: Collection[Place]) -> tuple[Stays, ...]:
    """Returns what cannot leave these places under this decision.

    A service stays if less of it would be served elsewhere. A preemptible job leaves, if need be into the queue; any
    other job stays to its end.
    """
    unserved = {unserved.service: unserved for unserved in decision.plan.unserved}
    carried = _rates(decision.desired)
    before = _rates(in_force)
    return tuple(
        Stays(instance.id, instance.owner, node, instance.gpu, *why, is_job=bool(instance.job))
        for node, instance in _there(in_force, places)
        if (why := _why(instance, unserved, carried, before))
    )


def find_reclaimed_gpus(nodes: Mapping[str, NodeStatus]) -> frozenset[Place]:
    """Returns those of the GPUs being drained whose node is to be reclaimed."""
    return frozenset(place for place in draining_gpus(nodes) if nodes[place[0]].reclaimed_at is not None)


def keep_undrainable(
    decision: Decision,
    in_force: Desired,
    places: Collection[Place],
    rules: RolloutRules,
    reclaimed: Collection[Place],
) -> Decision:
    """Returns the decision with the instances that cannot leave kept in place.

    A service stays as a whole on a GPU that is drained. On those that will be `reclaimed` it would be lost: as much of
    it as others can serve moves, and its old instances carry the rest to the end.
    """
    stays = leaving(decision, in_force, places)
    whole = {stay.owner for stay in stays if stay.is_job or (stay.node, stay.gpu) not in reclaimed}
    rest = [stay for stay in stays if stay.owner not in whole]
    held = {stay.owner: HeldBackChange(stay.owner, stay.reason, stay.message) for stay in stays if stay.owner in whole}
    lost = {stay.owner: HeldBackChange(stay.owner, Reason.RECLAIM_SHORT, stay.message) for stay in rest}
    target: Desired = keep_owners(decision.desired, in_force, held)
    if rest:
        target = _serving_to_the_end(target, in_force, rest, decision.plan.unserved)
    found = order(in_force, target, rules)
    if not held and not lost and not found.stuck:
        return decision
    services = tuple(sorted({change.owner for change in changes(in_force, found.target)}))
    held_back = (*decision.held_back, *held.values(), *lost.values(), *found.stuck)
    return replace(decision, desired=found.target, services=services, held_back=held_back)


def _serving_to_the_end(
    target: Desired, in_force: Desired, stays: Sequence[Stays], unserved: Iterable[Unserved]
) -> Desired:  # fmt: skip
    """Returns the target with these instances at the rate that nothing else serves: no other rate grows by them."""
    there = {instance.id: (node, instance) for node, wanted in in_force.items() for instance in wanted.instances}
    carried: dict[str, float] = {}
    for stay in stays:
        carried[stay.owner] = carried.get(stay.owner, 0.0) + there[stay.instance][1].rate_per_second
    short = [entry for entry in unserved if entry.service in carried]
    shares = {entry.service: entry.rate_per_second / carried[entry.service] for entry in short}
    found = keep_instances(target, in_force, {stay.instance for stay in stays})
    for stay in stays:
        node, instance = there[stay.instance]
        rate = instance.rate_per_second * min(1.0, shares[stay.owner])
        kept = msgspec.structs.replace(instance, rate_per_second=rate)
        found[node] = put_instance(found[node], kept.id, kept)
    return found


def progress(cordons: Iterable[Cordon], assigned: Desired, now: datetime, *, is_rolling: bool) -> tuple[Drain, ...]:
    """Returns how far each drain is: done, under way, or past its deadline with something left."""
    found = []
    for cordon in cordons:
        wanted = assigned.get(cordon.node)
        lines = (*wanted.instances, *wanted.swapped) if wanted else ()
        there = [line for line in lines if cordon.gpu == ALL_GPUS or cordon.gpu in line.all_gpus]
        remaining = tuple(sorted(line.owner for line in there))
        is_over = cordon.deadline is not None and now >= cordon.deadline
        found.append(Drain(cordon, remaining, is_over and (bool(remaining) or is_rolling), is_rolling))
    return tuple(found)


def _why(
    instance: AssignedInstance,
    unserved: Mapping[str, Unserved],
    carried: Mapping[str, float],
    before: Mapping[str, float],
) -> tuple[str, str] | None:
    owner = instance.owner
    if instance.job:
        if instance.preemptible:
            return None
        return Reason.NOT_PREEMPTIBLE, f"job {owner} is not preemptible"
    short = unserved.get(owner)
    if short is None or carried.get(owner, 0.0) >= before.get(owner, 0.0):
        return None
    shortfall = f"{short.rate_per_second:g} requests/s of {owner} would not be served"
    return Reason.NO_ROOM_ANYWHERE, "; ".join(filter(None, (shortfall, short.reason, short.relaxation)))


def _rates(desired: Desired) -> dict[str, float]:
    found: dict[str, float] = {}
    for wanted in desired.values():
        for instance in wanted.instances:
            found[instance.owner] = found.get(instance.owner, 0.0) + instance.rate_per_second
    return found


def _there(desired: Desired, places: Collection[Place]) -> Iterator[tuple[str, AssignedInstance]]:
    for node, wanted in sorted(desired.items()):
        for instance in wanted.instances:
            if any((node, gpu) in places for gpu in instance.all_gpus):
                yield node, instance
