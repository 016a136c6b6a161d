"""What a job is, what is known of it between cycles, and what nodes say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from agents.contract import Copy, HeldBack, InstanceMinute
from app.control.domain.desired import Desired
from app.control.domain.readings import JobReading
from app.control.domain.snapshot import DeclaredObject, JobProgress, NodeStatus
from app.manifests.work import JobSpec

PRIORITY: int = JobSpec.model_fields["priority"].default
ORDINAL_BITS = 31  # of a report's sequence inside its node's ordinal


class JobPhase(StrEnum):
    """Where a job is on its way."""

    QUEUED = "queued"  # it never ran
    STARTING = "starting"  # a node was told to run it
    RUNNING = "running"
    PREEMPTED = "preempted"  # it ran, and has to wait
    FINISHED = "finished"
    FAILED = "failed"  # it fell again and again without getting on; another manifest begins anew


WAITING = (JobPhase.QUEUED, JobPhase.PREEMPTED)
OVER = (JobPhase.FINISHED, JobPhase.FAILED)


@dataclass(frozen=True, slots=True)
class JobWork:
    """What is declared of a job. Units are steps of training, or requests of a manifest for offline inference."""

    job: str  # tenant/name
    units: float
    unit: str  # steps, requests
    deadline: datetime | None
    priority: float
    is_preemptible: bool
    fastest_per_second: float  # on any GPU type, alone, at its largest share
    memory_gib: Mapping[str, float]  # by GPU type
    least_sm_percent: Mapping[str, int]
    manifest: str  # what tells one manifest from another


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job was told to run."""

    instance: str
    node: str
    gpu: int
    sm_percent: float


@dataclass(frozen=True, slots=True)
class JobNeed:
    """What a job that found no place would have needed, and what there was."""

    reason: str = ""
    relaxation: str = ""
    attempts: int = 0  # without success, one after another
    retry_at: datetime | None = None
    room: Mapping[str, int] = field(default_factory=dict)  # GPU type -> most free SM% then, where its memory would fit


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of a job."""

    job: str
    phase: JobPhase
    since: datetime
    done: float = 0.0
    per_second: float = 0.0  # as measured; 0 while it does not run
    first_started_at: datetime | None = None
    finished_at: datetime | None = None
    failures: int = 0  # since it last got on
    manifest: str = ""
    instance: str = ""  # that it was last told to run as
    node: str = ""
    order: int = -1  # of the last report that counted
    said: float = 0.0  # by that instance, last; 0: nothing yet
    said_at: datetime | None = None
    before: str = ""  # the instance before: its last words count until the new one speaks
    before_order: int = -1
    fell: bool = False  # its last word was that it fell
    fell_at: datetime | None = None
    done_then: float = 0.0
    repeated: float = 0.0  # units done twice, for they were not saved
    preemptions: int = 0
    planned_per_second: float = 0.0
    is_late: bool = False
    message: str = ""
    need: JobNeed = JobNeed()

    @property
    def facts(self) -> JobProgress:
        """What a snapshot says of it."""
        need = self.need
        return JobProgress(
            self.phase.value, self.done, self.per_second, need.attempts, need.retry_at, dict(need.room), need.reason,
            need.relaxation,
        )  # fmt: skip


def declared_work(declared: tuple[DeclaredObject, ...]) -> dict[str, JobWork]:
    """Every declared job."""
    found = {}
    for one in declared:
        if one.kind == "Job":
            work = work_of(one)
            found[work.job] = work
    return found


def work_of(declared: DeclaredObject) -> JobWork:
    """A job as it was declared."""
    spec: Mapping[str, Any] = declared.spec
    unit = "steps" if spec["type"] == "training" else "requests"
    profiles: Mapping[str, Mapping[str, Any]] = spec["profiles"]
    deadline: str | None = spec.get("deadline")
    tables = {kind: profile[f"{unit}PerSecond"] for kind, profile in profiles.items()}
    return JobWork(
        job=f"{declared.tenant}/{declared.name}",
        units=float(spec[unit]),
        unit=unit,
        deadline=datetime.fromisoformat(deadline.upper()).astimezone(UTC) if deadline else None,
        priority=float(spec.get("priority", PRIORITY)),
        is_preemptible=bool(spec.get("preemptible", True)),
        fastest_per_second=max((float(speed) for table in tables.values() for speed in table.values()), default=0.0),
        memory_gib={kind: float(profile["memoryGib"]) for kind, profile in profiles.items()},
        least_sm_percent={kind: min(int(sm) for sm in table) for kind, table in tables.items()},
        manifest=blake2b(msgspec.json.encode(spec, order="deterministic"), digest_size=8).hexdigest(),
    )


def assigned_places(told: Desired, nodes: Mapping[str, NodeStatus]) -> dict[str, JobPlace]:
    """Where jobs were told to run, on nodes that are not lost."""
    found = {}
    for node, wanted in sorted(told.items()):
        if node in nodes and nodes[node].state in ("lost", "never"):
            continue
        for one in wanted.instances:
            if one.job:
                found[one.owner] = JobPlace(one.id, node, one.gpu, one.sm_percent)
    return found


class JobReport(Protocol):
    """A report, or what of one has been read."""

    @property
    def node(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def instances(self) -> Sequence[InstanceMinute]: ...
    @property
    def copies(self) -> Sequence[Copy]: ...
    @property
    def held_back(self) -> Sequence[HeldBack]: ...


def job_readings(report: JobReport, at: datetime) -> Iterator[JobReading]:
    """What a report says of jobs; `at` is when it was heard."""
    held = {one.instance: one for one in report.held_back}
    copies = {one.instance: one for one in report.copies}  # the newest is last
    order = (report.incarnation << ORDINAL_BITS) + report.sequence
    told = set()
    for one in report.instances:
        if one.job:
            told.add(one.id)
            why, copy = held.get(one.id), copies.get(one.id)
            yield JobReading(
                one.owner, one.id, report.node, order, at, one.steps,
                copy.stage if copy else "", *((why.reason, why.message) if why else ("", "")),
            )  # fmt: skip
    for id_, why in held.items():  # what has no process at the moment is no instance of the report
        if id_ not in told:
            yield JobReading("", id_, report.node, order, at, reason=why.reason, message=why.message)
