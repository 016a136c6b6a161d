"""Lists the differences between two assignments, instance by instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired

NOTHING = NodeDesired()


class WrongTarget(ValueError):
    """No rollout can lead to this target."""


class ChangeKind(StrEnum):
    """The kinds of change to an instance."""

    STOP = "stop"
    RETUNE = "retune"  # the same process with other settings
    RESHAPE = "reshape"  # the same instance as another process: its node hands over
    START = "start"


@dataclass(frozen=True)
class InstanceChange:
    """One instance that differs from the target."""

    kind: ChangeKind
    node: str
    before: AssignedInstance | None
    after: AssignedInstance | None

    @cached_property
    def instance(self) -> AssignedInstance:
        found = self.after or self.before
        assert found is not None
        return found

    @cached_property
    def id(self) -> str:
        return self.instance.id

    @cached_property
    def place(self) -> tuple[str, int]:
        return self.node, self.instance.gpu

    @cached_property
    def places(self) -> tuple[tuple[str, int], ...]:
        """Every GPU that it holds; `place` is the first of them."""
        return tuple((self.node, gpu) for gpu in self.instance.all_gpus)

    @cached_property
    def owner(self) -> str:
        return self.instance.owner

    @property
    def takes_room(self) -> bool:
        return self.kind in (ChangeKind.START, ChangeKind.RESHAPE)

    @property
    def growth(self) -> float:
        """The growth of the instance's memory in GiB."""
        return (self.after.memory_gib if self.after else 0.0) - (self.before.memory_gib if self.before else 0.0)


def changes(assigned: Desired, target: Desired) -> list[InstanceChange]:
    """Returns every instance whose assignment changes. An instance that moves must get another id."""
    found: list[InstanceChange] = []
    places: dict[str, tuple[str, int]] = {}
    for node in sorted({*assigned, *target}):
        before, after = assigned.get(node, NOTHING), target.get(node, NOTHING)
        if before.instances == after.instances:
            continue
        found += _list_changes_of_node(node, before, after)
    for change in found:
        if change.kind is ChangeKind.STOP:
            places[change.id] = change.place
    for change in found:
        if change.kind is ChangeKind.START and change.id in places:
            there = "/".join(map(str, places[change.id]))
            here = "/".join(map(str, change.place))
            raise WrongTarget(f"instance {change.id} runs on {there} and is wanted on {here}; a move needs another id")
    return found


def _list_changes_of_node(node: str, before: NodeDesired, after: NodeDesired) -> Iterator[InstanceChange]:
    old = {instance.id: instance for instance in before.instances}
    new = {instance.id: instance for instance in after.instances}
    for id_ in sorted({*old, *new}):
        was, shall = old.get(id_), new.get(id_)
        if was == shall:
            continue
        if was is None:
            yield InstanceChange(ChangeKind.START, node, None, shall)
        elif shall is None:
            yield InstanceChange(ChangeKind.STOP, node, was, None)
        elif was.all_gpus != shall.all_gpus:
            here, there = (" and ".join(map(str, line.all_gpus)) for line in (was, shall))
            raise WrongTarget(f"instance {id_} moves from GPU {here} to {there} of {node}; a move needs another id")
        else:
            yield InstanceChange(
                ChangeKind.RETUNE if same_process(was, shall) else ChangeKind.RESHAPE, node, was, shall
            )


def same_process(was: AssignedInstance, shall: AssignedInstance) -> bool:
    """Returns whether the running process can take the new settings: its limits and its largest batch never change."""
    return (
        was.template == shall.template
        and (was.args or {}) == (shall.args or {})
        and was.runtime == shall.runtime
        and was.variant == shall.variant
        and was.sm_percent == shall.sm_percent
        and was.memory_gib == shall.memory_gib
        and (shall.batch.max if shall.batch else 0.0) <= (was.batch.max if was.batch else 0.0)
    )


def has_other_batch(change: InstanceChange) -> bool:
    """Returns whether what it carries depends on a setting that its node has yet to apply."""
    was, shall = change.before, change.after
    if was is None or shall is None:
        return False
    return (was.batch, was.batch_timeout_ms) != (shall.batch, shall.batch_timeout_ms)


def put_instance(wanted: NodeDesired, id_: str, instance: AssignedInstance | None) -> NodeDesired:
    """Returns the node with this instance in place of the one with its id, or without it."""
    others = [other for other in wanted.instances if other.id != id_]
    lines = others if instance is None else sorted([*others, instance], key=lambda line: line.id)
    waiting = tuple(line for line in wanted.swapped if line.id != id_)
    return replace(wanted, instances=tuple(lines), swapped=waiting)


def components(todo: Sequence[InstanceChange]) -> list[list[InstanceChange]]:
    """Groups changes that can block each other, through a GPU or through a service."""
    parent = {change.id: change.id for change in todo}

    def root(id_: str) -> str:
        while parent[id_] != id_:
            parent[id_] = parent[parent[id_]]
            id_ = parent[id_]
        return id_

    first: dict[object, str] = {}
    for change in todo:
        for bond in (*change.places, change.owner):
            parent[root(change.id)] = root(first.setdefault(bond, change.id))
    found: dict[str, list[InstanceChange]] = {}
    for change in todo:
        found.setdefault(root(change.id), []).append(change)
    return list(found.values())


def job_starts(todo: Sequence[InstanceChange]) -> dict[str, InstanceChange]:
    """Returns the changes that start a job on another GPU, by the job."""
    return {change.owner: change for change in todo if change.instance.job and change.kind is ChangeKind.START}


def places_taken(todo: Sequence[InstanceChange]) -> Counter[tuple[str, int]]:
    """Returns how many copies of services are to come to each GPU."""
    coming = [change for change in todo if change.takes_room and change.instance.service]
    return Counter(place for change in coming for place in change.places)
