"""The declared work of a job, its state between cycles, and the readings that nodes report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

import msgspec

from agents.contract.reports import Copy, HeldBack, InstanceMinute
from app.control.domain.desired import Desired, FleetStatus
from app.control.domain.readings import JobReading
from app.control.domain.snapshot import DeclaredObject, JobProgress, NodeStatus
from app.control.domain.specs import (
    LEARNED,
    PRIORITIES,
    RETRIES,
    Spec,
    is_preemptible,
    job_tables,
    memory_gib,
    moment,
    retries_of,
    speed_field,
    unit_of,
    units_of,
)

SWAPPED = "swapped"  # the stage of a copy in host memory
ORDINAL_BITS = 31  # of a report's sequence inside its node's ordinal


class JobPhase(StrEnum):
    """The phases of a job."""

    QUEUED = "queued"  # never ran
    STARTING = "starting"  # assigned to a node
    RUNNING = "running"
    PREEMPTED = "preempted"  # ran before and waits
    FINISHED = "finished"
    FAILED = "failed"  # failed repeatedly without progress; a changed manifest restarts it


WAITING = (JobPhase.QUEUED, JobPhase.PREEMPTED)
OVER = (JobPhase.FINISHED, JobPhase.FAILED)


@dataclass(frozen=True, slots=True)
class JobWork:
    """The declared work of a job. Units are training steps, or requests for offline inference."""

    job: str  # tenant/name
    units: float
    unit: str  # steps, requests
    deadline: datetime | None
    priority: float
    is_preemptible: bool
    fastest_per_second: float  # on any GPU type, alone, at its largest share
    memory_gib: Mapping[str, float]  # by GPU type
    manifest: str  # a hash, to notice changes
    retries: int = RETRIES  # processes in a row that may fail without progress and are replaced
    gpus: int = 1
    undeclared_speeds: frozenset[str] = frozenset()  # GPU types where its speed is learned or assumed


@dataclass(frozen=True, slots=True)
class JobPlace:
    """The place that a job was assigned."""

    instance: str
    node: str
    gpus: tuple[int, ...]
    sm_percent: float


@dataclass(frozen=True, slots=True)
class JobNeed:
    """The room that a job without a place would have needed, and the room that was free."""

    reason: str = ""
    relaxation: str = ""
    attempts: int = 0  # failed in a row
    retry_at: datetime | None = None
    room: Mapping[str, int] = field(default_factory=dict)  # GPU type -> most free SM% at the last attempt


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job."""

    job: str
    phase: JobPhase
    since: datetime
    done: float = 0.0
    per_second: float = 0.0  # measured; 0 while it does not run
    first_started_at: datetime | None = None
    finished_at: datetime | None = None
    failures: int = 0  # since its last progress
    manifest: str = ""
    instance: str = ""  # of its last assignment
    node: str = ""
    order: int = -1  # of the last report that counted
    reported_units: float = 0.0  # last reported by that instance; 0: nothing yet
    reported_at: datetime | None = None
    before: str = ""  # the previous instance: its late reports count until the new instance reports
    before_order: int = -1
    is_down: bool = False  # its last report was a failure
    failed_at: datetime | None = None
    done_at_failure: float = 0.0
    repeated: float = 0.0  # units done twice, because they were not saved
    preemptions: int = 0
    planned_per_second: float = 0.0
    is_late: bool = False
    message: str = ""
    need: JobNeed = JobNeed()
    saved: float = 0.0  # units that its node reported as saved; a new process continues from there
    restarts: int = 0  # of its process after a failure, in all
    exits: int = 0  # of processes of its instance that are counted among the restarts
    exit_code: int | None = None  # of the last process that ended by itself, where it is known
    is_swapped: bool = False  # its process waits in the host memory of its node
    learned: Mapping[str, float] = field(default_factory=dict)  # GPU type -> units a second on a whole GPU

    @property
    def unsaved(self) -> float:
        """The units that a stop without a save would lose."""
        return max(0.0, self.done - self.saved)

    @property
    def facts(self) -> JobProgress:
        """The part of the state that snapshots hold."""
        need = self.need
        return JobProgress(
            self.phase.value, self.done, self.per_second, need.attempts, need.retry_at, dict(need.room), need.reason,
            need.relaxation, self.saved, self.node if self.is_swapped else "",
        )  # fmt: skip


def read_declared_work(declared: tuple[DeclaredObject, ...]) -> dict[str, JobWork]:
    """Returns the work of every declared job."""
    found = {}
    for item in declared:
        if item.kind == "Job":
            work = work_of(item)
            found[work.job] = work
    return found


def work_of(declared: DeclaredObject) -> JobWork:
    """Reads the work of a job from its manifest."""
    spec, tables = declared.spec, job_tables(declared.spec)
    return JobWork(
        job=declared.full_name,
        units=units_of(spec),
        unit=unit_of(spec),
        deadline=moment(spec.get("deadline")),
        priority=float(spec.get("priority", PRIORITIES["Job"])),
        is_preemptible=is_preemptible(spec),
        fastest_per_second=max((float(speed) for table, _ in tables.values() for speed in table.values()), default=0.0),
        memory_gib={kind: memory_gib(profile) for kind, (_, profile) in tables.items()},
        manifest=_hash_declared(spec),
        retries=retries_of(spec),
        gpus=int(spec.get("gpus", 1)),
        undeclared_speeds=frozenset(
            kind for kind, profile in spec["profiles"].items() if speed_field(spec) not in profile or LEARNED in profile
        ),
    )


def _hash_declared(spec: Spec) -> str:
    """Returns a hash of what is declared: a speed that is learned, or learned again, is no change."""
    profiles = {
        kind: {name: value for name, value in profile.items() if name not in (LEARNED, speed_field(spec))}
        if LEARNED in profile
        else profile
        for kind, profile in spec["profiles"].items()
    }
    words = msgspec.json.encode({**spec, "profiles": profiles}, order="deterministic")
    return blake2b(words, digest_size=8).hexdigest()


def list_assigned_places(assigned: Desired, nodes: Mapping[str, NodeStatus]) -> dict[str, JobPlace]:
    """Returns the places of jobs on nodes that are not lost."""
    found = {}
    for node, wanted in sorted(assigned.items()):
        if node in nodes and nodes[node].state in ("lost", "never"):
            continue
        for instance in wanted.instances:
            if instance.job:
                found[instance.owner] = JobPlace(instance.id, node, instance.all_gpus, instance.sm_percent)
    return found


class JobReport(Protocol):
    """A node's report, or the part of it that the planner reads."""

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


def list_swapped_instances(assigned: Desired, observed: FleetStatus) -> frozenset[str]:
    """Returns the instances of jobs whose processes wait in host memory, by the last reports of their nodes."""
    stages = {id_: status.stage for id_, status in observed.instances.items()}
    return frozenset(
        line.id
        for node, wanted in assigned.items()
        if node not in observed.lost
        for line in wanted.swapped
        if stages.get(line.id) == SWAPPED
    )


def job_readings(report: JobReport, at: datetime) -> Iterator[JobReading]:
    """Yields a report's readings of jobs; `at` is when it was received."""
    held = {held.instance: held for held in report.held_back}
    copies = {copy.instance: copy for copy in report.copies}  # of several the newest, which is last
    order = (report.incarnation << ORDINAL_BITS) + report.sequence
    reported = set()
    for instance in report.instances:
        if instance.job:
            reported.add(instance.id)
            why, copy = held.get(instance.id), copies.get(instance.id)
            yield JobReading(
                instance.owner, instance.id, report.node, order, at, instance.steps,
                copy.stage if copy else "", *((why.reason, why.message) if why else ("", "")), instance.saved_steps,
                max(why.exit_code if why else -1, instance.exit_code), instance.exits,
            )  # fmt: skip
    for id_, why in held.items():  # instances without a process are only in held_back
        if id_ not in reported:
            yield JobReading(
                "", id_, report.node, order, at, reason=why.reason, message=why.message,
                exit_code=why.exit_code,
            )  # fmt: skip
