"""Everything that is known at one moment: a decision is made from it, recorded with it and replayed from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from agents.contract.admitted import AdmittedEntry
from app.control.domain.desired import NodeDesired
from app.control.domain.regret import NO_REGRETS, RegretAccounts
from app.manifests.model import WrittenSpec
from solvers.forecast import MarginScores
from solvers.planning.measured import MeasuredInstance

SILENT_SECONDS = 35.0  # three reports and a little: then a node is silent
NodeState = Literal["reporting", "silent", "lost", "never", "mismatch"]


@dataclass(frozen=True, slots=True)
class DeclaredObject:
    """A declared object, as it was written."""

    kind: str
    tenant: str
    name: str
    spec: WrittenSpec

    @property
    def full_name(self) -> str:
        """The name of a service or job in plans: tenant/name."""
        return f"{self.tenant}/{self.name}"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of a node, as far as it matters for planning.

    A `silent` node has not reported for a while: its instances keep running, and it gets nothing new. A `lost` node was
    silent for longer than the policy's lostAfterSeconds and counts as gone. A node with other devices than declared is
    a `mismatch`.
    """

    name: str
    state: NodeState
    failed_gpus: tuple[int, ...] = ()  # by index: failed, fenced or missing
    missing_gpus: tuple[int, ...] = ()  # those that are declared, and not there
    cordoned_gpus: tuple[int, ...] = ()  # nothing new is placed there
    draining_gpus: tuple[int, ...] = ()  # everything has to leave
    resting_gpus: tuple[int, ...] = ()  # nothing new is placed there for a while, as a step failed there
    # GPUs whose cap and SLOs it could not keep by clock and batch in the last hour, and the answers that it is due
    partition_requests: tuple[tuple[int, int], ...] = ()
    keeps_reserve: bool = False  # those GPUs are planned with fewer watts than they may draw
    templates: tuple[str, ...] | None = None  # as reported; None: unknown
    admitted: tuple[AdmittedEntry, ...] = ()  # of users' own runtimes, as reported
    reclaimed_at: datetime | None = None  # when its cloud takes it back; None: no notice was given

    @property
    def closed_gpus(self) -> frozenset[int]:
        """Returns the GPUs on which nothing may be placed now."""
        return frozenset((*self.failed_gpus, *self.cordoned_gpus, *self.draining_gpus, *self.resting_gpus))

    def was_reclaimed(self, at: datetime) -> bool:
        """Returns whether it is gone as its cloud had announced."""
        return self.state == "lost" and self.reclaimed_at is not None and self.reclaimed_at <= at


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """The load of a service that a plan is made for."""

    rate_per_second: float  # that the plan is made for
    low: float = 0.0  # lower end of the forecast's band
    high: float = 0.0
    observed_per_second: float = 0.0  # in the last cycle
    observed_seconds: float = 0.0  # how long it has been observed
    reason: str = ""  # declared, held, risen, fallen, silent, outlook
    variation: float = 0.0  # of its arrival rate by bursts, as measured, in classes
    burstiness: Mapping[str, float] = field(default_factory=dict)  # measured dispersion of counts, by SLOs a window
    input_mean: float = 0.0  # tokens of a prompt, as measured, in classes; 0: as declared
    output_mean: float = 0.0  # tokens of an answer
    margin: float = 0.0  # share by which the plan exceeds the load that is surely there
    risk: float = 0.0  # share of hours that the margin lets overspend their error budget
    scores: MarginScores = field(default_factory=MarginScores)  # that the margin was learned from
    bare_per_second: float = 0.0  # what a new plan would be made for without a margin,
    sure_per_second: float = 0.0  # and for the load that is surely there alone: a margin raises this
    risen_margin: float | None = None  # that is in the rate since it last rose; None: it has fallen since
    missed_hours: int = 0  # that did overspend it by load above the plan, of those known
    known_hours: int = 0
    gives_way: bool = False  # GPUs are short, and requests of others arrive: it is planned for what arrives

    def plan_at_risk(self, risk: float) -> ExpectedLoad:
        """Returns the load to plan for if the margin were that which the scores give at another risk.

        A rate that has not fallen since it rose would have risen to another one.
        """
        margin = self.scores.margin(risk)
        bare = 0.0 if self.risen_margin is None else self.rate_per_second / (1 + self.risen_margin)
        before, after = (
            max(self.bare_per_second, self.sure_per_second * (1 + share), bare * (1 + share))
            for share in (self.margin, margin)
        )
        more = after - before
        reason = "what_if" if more else self.reason
        return replace(
            self, rate_per_second=max(0.0, self.rate_per_second + more), margin=margin, risk=risk, reason=reason
        )


@dataclass(frozen=True, slots=True)
class LatencyFactor:
    """The factor on the declared time of a batch, at one place of a profile's curve."""

    batch: int  # 0: every batch that has no factors of its own
    sm_percent: int
    factor: float


@dataclass(frozen=True, slots=True)
class Correction:
    """The corrections of a profile that measurements gave, as plans use them."""

    latency: tuple[LatencyFactor, ...] = ()  # in order; empty: as declared
    sensitivity_factor: float = 1.0
    memory_factor: float = 1.0
    power_factor: float = 1.0

    @property
    def farthest(self) -> LatencyFactor:
        """Returns the place where latency differs most from the declared."""
        declared = LatencyFactor(0, 0, 1.0)
        return max(self.latency, key=lambda point: max(point.factor, 1 / point.factor), default=declared)

    @property
    def latency_factor(self) -> float:
        """Returns the factor of latency that differs most from 1."""
        return self.farthest.factor


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job."""

    phase: str = "queued"
    done: float = 0.0  # steps or requests
    per_second: float = 0.0
    attempts: int = 0  # failed attempts to place it since it was last placed
    retry_at: datetime | None = None  # not tried before then, unless room has become free since
    room: Mapping[str, int] = field(default_factory=dict)  # GPU type -> most free SM% when placing it last failed
    reason: str = ""
    relaxation: str = ""
    saved: float = 0.0  # of what is done: a stop without a save would lose the rest
    swapped_on: str = ""  # the node in whose host memory its process waits


@dataclass(frozen=True, slots=True)
class TenantSpending:
    """A tenant's spending this month, in the currency of prices."""

    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class Rest:
    """A pause after failed steps of a service or job.

    It rests on the GPU where they failed; on the node, if they failed on several GPUs of it. Steps that failed on more
    than one node would fail on others, so it rests everywhere, as after a failure that no GPU caused.
    """

    until: datetime
    places: tuple[tuple[str, int], ...] = ()  # nodes and GPUs where steps failed; empty: no GPU was the cause

    @property
    def is_everywhere(self) -> bool:
        return len({node for node, _ in self.places}) != 1

    def covers(self, place: tuple[str, int]) -> bool:
        """Returns whether nothing of it may start there."""
        return self.is_everywhere or covers(self.places, place)


def covers(failed: Collection[tuple[str, int]], place: tuple[str, int]) -> bool:
    """Returns whether steps failed on this GPU, or on several others of its node."""
    return place in failed or sum(node == place[0] for node, _ in failed) > 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent read of everything that a plan depends on."""

    at: datetime
    epoch: int
    declared: tuple[DeclaredObject, ...] = ()
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    in_force: Mapping[str, NodeDesired] = field(default_factory=dict)  # the plan in force, by node
    assigned: Mapping[str, NodeDesired] | None = None  # the assignments, until they are the plan in force
    expected: Mapping[str, ExpectedLoad] = field(default_factory=dict)  # by tenant/name
    corrections: Mapping[str, Correction] = field(default_factory=dict)  # by model/variant/gpuType
    jobs: Mapping[str, JobProgress] = field(default_factory=dict)  # by tenant/name
    tenants: Mapping[str, TenantSpending] = field(default_factory=dict)
    resting: Mapping[str, Rest] = field(default_factory=dict)  # services and jobs whose last step failed
    failed_places: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)  # GPUs where services failed
    suspects: tuple[str, ...] = ()  # services that fail wherever they are started
    blocked: tuple[str, ...] = ()  # services and jobs whose changes the rollout left out, as they blocked each other
    measured: Mapping[str, MeasuredInstance] = field(default_factory=dict)  # for planners that try batches
    is_rolling: bool = False  # the plan in force is not fully rolled out
    is_paused: bool = False  # a person has paused the rollout of the plan in force
    is_stopped: bool = False  # the rollout of the plan in force ended without some of its changes
    is_held: bool = False  # since a rollback, until a person resumes the fleet
    target: int = 0  # generation of the plan in force; 0: none yet
    is_unwanted: bool = False  # a person has asked to return from the plan in force to an earlier one
    proposal: int = 0  # generation of the newest plan that waits for approval; 0: none
    regrets: RegretAccounts = NO_REGRETS  # of what waited when the decision was made
    calls: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of a quick step: rates wanted, and at once

    @property
    def assignments(self) -> Mapping[str, NodeDesired]:
        """Returns what nodes are assigned: an order of steps starts from there, also in the middle of a rollout."""
        return self.in_force if self.assigned is None else self.assigned
