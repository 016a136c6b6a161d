"""What every node shall run: the form in which a plan becomes assignments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from agents.contract import AssignedGpu, AssignedInstance


@dataclass(frozen=True, slots=True)
class NodeDesired:
    """One node's part: instances by id, devices by index. Equal content is not written again."""

    instances: tuple[AssignedInstance, ...] = ()
    gpus: tuple[AssignedGpu, ...] = ()
    handover: str = "overlap"
    handover_seconds: float = 120.0
    clients_per_gpu: int = 48
    same_model_per_gpu: int = 1


Desired: TypeAlias = Mapping[str, NodeDesired]  # by node


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """What a node last said of one instance."""

    stage: str = ""  # of its most advanced copy; ready once it serves
    routed: bool = False
    reason: str = ""  # why it is held back, or failed
    message: str = ""
    generation: int = 0  # of the assignment that the node holds
    sm_percent: float = 0.0  # of the copy that serves
    memory_gib: float = 0.0
    copies: int = 1  # old and new while it is handed over


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """What nodes last said of what they run."""

    instances: Mapping[str, InstanceStatus] = field(default_factory=dict)  # by instance id
    generations: Mapping[str, int] = field(default_factory=dict)  # by node: of the assignment it holds
    silent: frozenset[str] = frozenset()  # nodes that are not heard of
    ailing: frozenset[tuple[str, int]] = frozenset()  # GPUs that failed or are fenced
    lost: frozenset[str] = frozenset()  # nodes that have been silent for so long that they count as gone
    assigned_generations: Mapping[str, int] = field(default_factory=dict)  # by node: of its newest assignment
