"""The desired state of each node, and the state that nodes report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agents.contract.assignments import AssignedGpu, AssignedInstance


@dataclass(frozen=True, slots=True)
class NodeDesired:
    """The desired state of one node: instances by id, devices by index. An equal state is not written again."""

    instances: tuple[AssignedInstance, ...] = ()
    gpus: tuple[AssignedGpu, ...] = ()
    handover: str = "overlap"
    handover_seconds: float = 120.0
    clients_per_gpu: int = 48
    same_model_per_gpu: int = 1
    swapped: tuple[AssignedInstance, ...] = ()  # jobs as they ran here, whose processes may wait in host memory

    def sharing(self, other: NodeDesired | None) -> NodeDesired:
        """Returns an equal state, made of the other state's objects where these are equal.

        A cycle compares assignments many times, and Python compares an object with itself at once.
        """
        if other is None:
            return self
        lines = {line.id: line for line in other.instances}
        instances = tuple([known if (known := lines.get(line.id)) == line else line for line in self.instances])
        found = replace(self, instances=instances)
        return other if found == other else found


Desired: TypeAlias = Mapping[str, NodeDesired]  # by node


def have_same_instances(assigned: Desired, target: Desired) -> bool:
    """Returns whether every node has the instances that the target wants."""
    none = NodeDesired()
    return all(assigned.get(node, none).instances == target.get(node, none).instances for node in {*assigned, *target})


def sum_rates(desired: Desired) -> dict[str, float]:
    """Returns the rate that the instances of each service carry together."""
    found: dict[str, float] = {}
    for wanted in desired.values():
        for instance in wanted.instances:
            if instance.service:
                found[instance.owner] = found.get(instance.owner, 0.0) + instance.rate_per_second
    return found


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """The last reported status of an instance."""

    stage: str = ""  # of its most advanced copy; `ready` once it serves
    routed: bool = False
    reason: str = ""  # why it is held back, or failed
    message: str = ""
    generation: int = 0  # of the node's current assignment
    sm_percent: float = 0.0  # of the serving copy
    memory_gib: float = 0.0
    copies: int = 1  # two during a handover: the old and the new
    rising: str = ""  # stage of the most advanced copy that does not serve yet; empty if there is none


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """The copies of a service: planned, running by their nodes' reports, and routed to."""

    planned: int = 0
    running: int = 0
    routed: int = 0
    why: str = ""  # what the node says of one that does not run; empty while the others start
    is_suspect: bool = False  # it fails wherever it is started


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The last reported status of the whole fleet."""

    instances: Mapping[str, InstanceStatus] = field(default_factory=dict)  # by instance id
    generations: Mapping[str, int] = field(default_factory=dict)  # by node: of its current assignment
    silent: frozenset[str] = frozenset()  # nodes that do not report, whatever the cause
    ailing: frozenset[tuple[str, int]] = frozenset()  # failed or fenced GPUs
    lost: frozenset[str] = frozenset()  # nodes that were silent for too long and count as gone
    assigned_generations: Mapping[str, int] = field(default_factory=dict)  # by node: of its newest assignment
    reported_at: Mapping[str, float] = field(default_factory=dict)  # by node: when its last report came, seconds
    heard_since: float = 0.0  # when the last outage ended in which no report could come, seconds
    is_outage: bool = False  # no node reports: the present state is unknown
    reclaimed_at: Mapping[str, float] = field(default_factory=dict)  # by node under notice: its deadline, seconds
