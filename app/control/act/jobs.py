"""Looks after jobs between cycles: records what nodes report, and gathers newly arrived jobs for the next cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.control.decide.last_question import CycleResult
from app.control.domain.desired import Desired
from app.control.domain.events import NewEvent, Reason
from app.control.domain.leading import Deposed, FleetView
from app.control.domain.readings import JobReading
from app.control.domain.snapshot import DeclaredObject, NodeStatus, Snapshot
from app.control.jobs import rows
from app.control.jobs.life import JobsStep, advance_jobs
from app.control.jobs.queue import apply_answer, queue_jobs
from app.control.jobs.speeds import learn_speeds
from app.control.jobs.state import JobState, list_assigned_places, list_swapped_instances, read_declared_work
from app.control.jobs.window import GatheringWindow, count_arrivals
from app.control.measure import metrics
from app.control.record.planner_store import PlannerStore
from app.store.database import lease
from app.store.database.database import Database
from app.store.world import events
from solvers.planning.plan import Plan

LIFE_EVERY = timedelta(seconds=2)
ENDS = (Reason.JOB_FINISHED, Reason.JOB_FAILED)  # their room is free again


@dataclass(slots=True)
class JobRounds:
    """The schedule of looking after jobs, and the jobs gathered for the next cycle."""

    _declared: Sequence[DeclaredObject] | None = None  # that the last cycle knew
    _window: GatheringWindow = field(default_factory=GatheringWindow)
    _advanced_at: datetime | None = None

    def others_arrived(self, store: PlannerStore) -> bool:
        """Returns whether any declaration but jobs has changed since the last cycle; jobs alone begin a window."""
        if self._declared is None:
            return True
        arrivals = count_arrivals(self._declared, store.world())
        if arrivals.jobs and not arrivals.others and self._window.since is None:
            self._window = self._window.arrived(store.moment().timestamp(), arrivals.jobs)
        return arrivals.others > 0

    def note_cycle(self, result: CycleResult) -> None:
        """Empties the window; how long the next jobs wait in it follows from what is still not placed."""
        plan = result.decision.plan if result.decision else Plan(())
        self._window = self._window.planned(len(plan.unserved), len(plan.unplaced), failed=bool(plan.unplaced))
        if result.snapshot:
            self._declared = result.snapshot.declared

    def advance(self, store: PlannerStore, view: FleetView, readings: Callable[[], Iterable[JobReading]]) -> None:
        """Records the jobs' progress every other second; the room of ended jobs is free for others."""
        if self._advanced_at is not None and view.at < self._advanced_at + LIFE_EVERY:
            return
        self._advanced_at = view.at
        events_now = advance_recorded_jobs(store.database, store.epoch, view, readings())
        if ended := sum(event.reason in ENDS for event in events_now):
            self._window = self._window.arrived(view.at.timestamp(), ended)

    def is_due(self, now: datetime) -> bool:
        """Returns whether the gathered jobs are to be planned now."""
        return self._window.is_due(now.timestamp())


def advance_recorded_jobs(
    database: Database, epoch: int, view: FleetView, readings: Iterable[JobReading]
) -> Sequence[NewEvent]:
    """Records one moment in the life of every job; returns what happened. Where nothing has changed it only looks."""
    known = read_declared_work(view.declared)
    places = list_assigned_places(view.assigned, {node: NodeStatus(node, "lost") for node in view.status.lost})
    known_readings, swapped = list(readings), list_swapped_instances(view.assigned, view.status)

    def advance(before: Mapping[str, JobState]) -> JobsStep:
        step = advance_jobs(before, known, places, known_readings, view.at, swapped)
        return JobsStep(learn_speeds(step.states, known, places, view.declared, view.at), step.events)

    def write(connection: Connection) -> Sequence[NewEvent]:
        if not lease.is_newest(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        before = rows.read(connection)  # again, and under the lease: a cycle may have written since
        after = advance(before)
        rows.write(connection, before, after.states)
        events.record(connection, after.events)
        return after.events

    if not view.jobs and not known:
        return ()
    seen = rows.states_of(view.jobs)
    expected = advance(seen)
    if expected.states == seen and not expected.events:
        return ()
    happened = database.write(write)
    metrics.count_events(happened)
    return happened


def apply_plan_to_jobs(database: Database, epoch: int, snapshot: Snapshot, plan: Plan, follows: Desired) -> None:
    """Records what a plan means for the queue: which jobs got a place, and which rest for lack of room.

    `follows` is in force once the plan is decided upon: not all of the plan, where changes are held back.
    """

    queue = queue_jobs(snapshot)
    if not queue.units_left:
        return

    def write(connection: Connection) -> None:
        if not lease.is_newest(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        before = rows.read(connection)
        if before:
            after = apply_answer(before, queue, plan, follows, snapshot, snapshot.at)
            rows.write(connection, before, after)

    database.write(write)
