"""A rollout's rules, state and results: small and plain, stored as JSON with its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.contract.assignments import AssignedInstance
from app.control.domain.decision import HeldBackChange
from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.domain.failures import PlaceFailure
from app.control.domain.specs import JOBS_PER_GPU


@dataclass(frozen=True, slots=True)
class RolloutRules:
    """The limits of the fleet and the tuning of rollouts. A shape's key is model/variant/gpuType."""

    memory_gib: Mapping[str, float]  # of one GPU, by node; where it is not known, nothing is started
    gpu_types: Mapping[str, str] = field(default_factory=dict)  # by node
    min_instances: Mapping[str, int] = field(default_factory=dict)  # by service
    start_seconds: Mapping[str, float] = field(default_factory=dict)  # by key
    unproven: frozenset[str] = frozenset()  # keys that never ran in this fleet
    by_hand: Mapping[str, str] = field(default_factory=dict)  # why a person moves it, by service
    hurried: frozenset[str] = frozenset()  # services and jobs that leave a node to be reclaimed: no canary delays them
    swapping: frozenset[str] = frozenset()  # jobs whose processes may wait in host memory
    jobs_per_gpu: int = JOBS_PER_GPU
    patience: float = 5.0  # times its startSeconds: within them a copy has to serve; and never less than
    least_seconds: float = 60.0
    most_silences: int = 3  # of its node that a step is forgiven
    stuck_seconds: float = 15.0  # without any progress, before the least important instance gives way
    blocked_seconds: float = 20.0  # that changes wait with nothing under way, before they are left out
    leaving_seconds: float = 300.0  # a copy that takes longer to leave is not waited for
    held_seconds: float = 10.0  # a copy that a node holds back or cannot start for longer has failed
    down_seconds: float = 20.0  # a copy that has served and is down for longer has failed
    canary_seconds: float = 60.0  # for which the first instance of its shape is watched
    canary_requests: int = 200  # enough to judge it
    canary_patience: float = 5.0  # times canary_seconds, after which fewer requests suffice


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A change that was assigned and is not reported done yet: a copy to start, or another batch."""

    since: float  # seconds
    before: AssignedInstance | None = None  # the old shape, which serves until the new one does
    is_new: bool = False  # it never served: its assignment changed while it started
    held_since: float = 0.0  # since when the node reports that it cannot; 0: it does not
    progress: int = 0  # the furthest that its new copy has come, as an index of STAGES
    progress_at: float = 0.0  # when it came so far, seconds
    returns: bool = False  # it was taken back: its old shape serves, and the new copy is to leave
    reported_at: float = 0.0  # the last report of its node that was noted, seconds
    silences: int = 0  # of its node, after which its time began again
    waits_for: str = ""  # a sentence about the gateway that still sends requests to its old copy


@dataclass(frozen=True, slots=True)
class Leaving:
    """An instance that is no longer wanted and holds its place until its node reports it gone."""

    node: str
    instance: AssignedInstance
    since: float = 0.0  # seconds
    is_overdue: bool = False  # an event has said that it takes too long
    swaps: bool = False  # its process may wait in host memory: then it holds nothing of its GPU either
    waits_for: str = ""  # a sentence about the gateway that still sends it requests


@dataclass(frozen=True, slots=True)
class LaggingNode:
    """A node that has not applied its last assignment."""

    generation: int  # the newest that it has applied
    since: float  # when it was first seen so, seconds


@dataclass(frozen=True, slots=True)
class Canary:
    """The first instance of a shape that never ran here."""

    instance: str
    ready_since: float = 0.0
    before: AssignedInstance | None = None  # what the instance was
    tried_since: float = 0.0  # when it first served, or was no longer waited for


@dataclass(frozen=True, slots=True)
class DownSpell:
    """A time in which an instance does not run although no step of a rollout changes it."""

    since: float  # seconds
    times: int = 1  # that it went down, each time a short while after it had come up
    up_since: float = 0.0  # since when it runs again; 0: it does not
    is_told: bool = False  # an event has said so, and it stays where it is


@dataclass(frozen=True, slots=True)
class RolloutNotice:
    """What has happened to a service, to a tenant, or to the fleet where none is named: an event says it."""

    reason: Reason
    message: str
    owner: str = ""
    tenant: str = ""

    @property
    def kind(self) -> str:
        return "Service" if self.owner else "Tenant" if self.tenant else ""


@dataclass(frozen=True, slots=True)
class HeldMoves:
    """The time in which nothing that is down moves, and the parts that have moved since."""

    since: float  # seconds
    turns: int = 0
    moved_at: float = 0.0  # the last turn, seconds


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The state of a rollout; everything else is read from the fleet."""

    sequence: tuple[str, ...] = ()  # instances, in the order in which their changes may contend for room
    pending: Mapping[str, PendingStep] = field(default_factory=dict)  # by instance
    leaving: Mapping[str, Leaving] = field(default_factory=dict)  # by instance
    canaries: Mapping[str, Canary] = field(default_factory=dict)  # by key, on trial
    proven: tuple[str, ...] = ()  # keys whose canary passed
    steps: int = 0  # that have been assigned
    stuck_since: float = 0.0  # when progress stopped; 0: there is progress
    retried: tuple[str, ...] = ()  # instances that were late once and start again at the same place
    left_out: tuple[str, ...] = ()  # services and jobs whose remaining changes are left out, as a step failed
    blocked: Mapping[str, float] = field(default_factory=dict)  # by instance: since when nothing was under way for it
    blocked_at: float = 0.0  # the last time that anything was blocked; 0: nothing is
    waited_seconds: float = 0.0  # under this plan, in which changes waited with nothing under way
    freed: tuple[str, ...] = ()  # services and jobs whose changes are left out, as they were blocked
    lagging: Mapping[str, LaggingNode] = field(default_factory=dict)  # by node
    longest_starts: Mapping[str, float] = field(default_factory=dict)  # by key, seconds
    down: Mapping[str, DownSpell] = field(default_factory=dict)  # by instance
    failures: tuple[PlaceFailure, ...] = ()  # that still count, the oldest first
    suspects: tuple[str, ...] = ()  # services that fall wherever they are: they are not moved
    held: Mapping[str, HeldMoves] = field(default_factory=dict)  # by tenant, or of all: much of it went down at once
    held_nodes: tuple[str, ...] = ()  # that are silent and do not count as lost yet, as they went so together


@dataclass(frozen=True, slots=True)
class WaitingChange:
    """A change that is not made yet, and why."""

    instance: str
    owner: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Advance:
    """The next assignment, and the state after it."""

    desired: Desired  # of the whole fleet
    changed: Desired  # nodes whose assignment changes
    state: RolloutState
    done: bool = False
    stopped_reason: str = ""  # a Reason: what failed is taken back, and no change tied to it is made
    message: str = ""
    target: Desired | None = None  # the target without the changes that are left out, if any are
    is_over: bool = False  # only changes that are left out remain
    freed: str = ""  # a message: changes were blocked, and are left out or get another order
    retried: tuple[str, ...] = ()  # messages: steps that are late for the first time, and are tried again
    overdue: tuple[str, ...] = ()  # messages: copies that leave, and that are not waited for any longer
    waiting: tuple[WaitingChange, ...] = ()
    passed: tuple[str, ...] = ()  # keys whose canary has just passed
    made: tuple[str, ...] = ()  # instances whose assignment changes, in this order
    notices: tuple[RolloutNotice, ...] = ()


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """The order of changes from the assignments of now to the target."""

    stuck: tuple[HeldBackChange, ...]  # what has no order, with the least room that would help
    target: Desired  # where the steps end: as wanted, except that what is stuck stays as it is
    sequence: tuple[str, ...]  # for the rollout's state
