"""All that is known at one moment, frozen: what a decision is made from, recorded with it, and replayed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from app.control.domain.desired import NodeDesired
from app.manifests.model import JSON

NodeState = Literal["reporting", "silent", "lost", "never", "mismatch"]


@dataclass(frozen=True, slots=True)
class DeclaredObject:
    """One object of the world, as it was written."""

    kind: str
    tenant: str
    name: str
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How a node is, as far as planning goes.

    `silent` is not heard of for a while: what runs there goes on, nothing new is sent. `lost` is silent for longer than
    the policy's lostAfterSeconds: it counts as gone. `mismatch` has other devices than were declared.
    """

    name: str
    state: NodeState
    failed_gpus: tuple[int, ...] = ()  # by index: failed or fenced
    cordoned_gpus: tuple[int, ...] = ()  # nothing new
    draining_gpus: tuple[int, ...] = ()  # nothing at all
    uuids: tuple[str, ...] = ()  # by index
    templates: tuple[str, ...] | None = None  # as reported; None: not known


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """What is asked of a service in the time that a plan is for."""

    rate_per_second: float  # to be planned for
    low: float = 0.0  # the band that the forecast gives
    high: float = 0.0
    observed_per_second: float = 0.0  # in the last cycle
    observed_seconds: float = 0.0  # how long it has been watched
    reason: str = ""  # declared, held, risen, fallen


@dataclass(frozen=True, slots=True)
class Correction:
    """What measuring says against a profile."""

    latency_factor: float = 1.0
    memory_factor: float = 1.0
    power_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Where a job is on its way."""

    phase: str = "queued"
    done: float = 0.0  # steps or requests
    per_second: float = 0.0
    attempts: int = 0  # to place it that failed, since it was last placed
    retry_at: datetime | None = None  # it rests until then, unless room has come free since
    room: Mapping[str, int] = field(default_factory=dict)  # GPU type -> most free SM% when it last found no place
    reason: str = ""
    relaxation: str = ""


@dataclass(frozen=True, slots=True)
class TenantSpending:
    """What a tenant has spent in this month, in the currency of prices."""

    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent read of everything that decides a plan."""

    at: datetime
    epoch: int
    declared: tuple[DeclaredObject, ...] = ()
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    in_force: Mapping[str, NodeDesired] = field(default_factory=dict)  # what the plan in force wants of each node
    expected: Mapping[str, ExpectedLoad] = field(default_factory=dict)  # by tenant/name
    corrections: Mapping[str, Correction] = field(default_factory=dict)  # by model/variant/gpuType
    jobs: Mapping[str, JobProgress] = field(default_factory=dict)  # by tenant/name
    tenants: Mapping[str, TenantSpending] = field(default_factory=dict)
    resting: Mapping[str, datetime] = field(default_factory=dict)  # whose last step failed, until when
    moved: int = 0  # full plans of the last hour that moved something
    is_rolling: bool = False  # the plan in force is not yet what runs
    rolled_back_at: datetime | None = None  # since when the plan in force is one that somebody brought back
    target: int = 0  # generation of the plan that is in force; 0: none yet

    def spec(self, kind: str, name: str, tenant: str = "") -> Mapping[str, JSON] | None:
        """What was declared under this name."""
        return next((d.spec for d in self.declared if (d.kind, d.tenant, d.name) == (kind, tenant, name)), None)
