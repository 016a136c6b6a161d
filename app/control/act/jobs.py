"""Jobs live between cycles: what nodes say of them is added to what is known, and kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from app.control.domain.events import NewEvent
from app.control.domain.leading import Deposed, FleetView
from app.control.domain.readings import JobReading
from app.control.domain.snapshot import NodeStatus, Snapshot
from app.control.jobs import advance_jobs, apply_answer, assigned_places, declared_work, queue_jobs, rows
from app.control.measure import metrics
from app.store.database import lease
from app.store.database.database import Database
from app.store.world import events
from solvers.planning.plan import Plan


def live(database: Database, epoch: int, look: FleetView, readings: Iterable[JobReading]) -> Sequence[NewEvent]:
    """One moment in the life of every job; what happened."""
    known = declared_work(look.declared)
    told = assigned_places(look.assigned, {node: NodeStatus(node, "lost") for node in look.status.lost})
    heard = list(readings)

    def write(connection: Connection) -> tuple[NewEvent, ...]:
        if not lease.held(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        before = rows.read(connection)
        if not before and not known:
            return ()
        after = advance_jobs(before, known, told, heard, look.at)
        rows.write(connection, before, after.states)
        events.record(connection, after.events)
        return after.events

    happened = database.write(write)
    metrics.count_events(happened)
    return happened


def answer(database: Database, epoch: int, snapshot: Snapshot, plan: Plan) -> None:
    """What a plan means for the queue: who got a place, and who rests, since nobody had room."""

    def write(connection: Connection) -> None:
        if not lease.held(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        before = rows.read(connection)
        if before:
            rows.write(connection, before, apply_answer(before, queue_jobs(snapshot), plan, snapshot, snapshot.at))

    database.write(write)
