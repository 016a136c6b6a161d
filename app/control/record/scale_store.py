"""The scaler's access to the database: its lease, its plans, and what became of each write; all under its epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.leading import Deposed
from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import scale_history, scale_plans
from app.store.plans.scale_rows import KIND, ScaleDraft, ScalePlan, ScaleRow, ScaleState, ScaleTarget, clean_text
from app.store.world import events

REASONS = {
    ScaleState.WRITTEN: Reason.REPLICAS_WRITTEN,
    ScaleState.REFUSED: Reason.REPLICAS_REFUSED,
    ScaleState.OVERTAKEN: Reason.REPLICAS_OVERTAKEN,
}
MOST_FORGOTTEN = 1000  # plans at a time
MOST_ROWS = 10_000  # at a time
NEWEST_PLANS = 200  # that are kept whole
MOST_OF_WORKLOAD = 2000  # rows


class ScaleStore:
    """The store of a scaler. `epoch` is that of its lease, 0 while it has none."""

    def __init__(self, database: Database, holder: str, lease_seconds: float) -> None:
        self.database, self.holder, self.lease_seconds = database, holder, lease_seconds
        self.epoch = 0

    def lead(self) -> bool:
        """Takes or renews the lease; returns True while leading."""
        taken = self.database.repeatable(
            lambda connection: lease.take(connection, self.holder, self.lease_seconds, lease.SCALER)
        )
        self.epoch = taken or 0
        return taken is not None

    def step_down(self) -> None:
        """Gives the lease up, so that another scaler can lead at once."""
        if self.epoch:
            self.database.repeatable(lambda connection: lease.release(connection, self.holder, lease.SCALER))
        self.epoch = 0

    def find_writing(self) -> list[ScaleRow]:
        """Returns the writes whose outcome nobody has recorded."""
        return self.database.read(scale_plans.find_writing)

    def find_written(self, seconds: float) -> set[ScaleTarget]:
        """Returns the workloads that any scaler has written within so many seconds."""
        return self.database.read(lambda connection: scale_plans.find_written(connection, seconds))

    def read(self) -> ScalePlan | None:
        """Returns the newest plan."""
        return self.database.read(scale_plans.read_plan)

    def record(self, epoch: int, drafts: Sequence[ScaleDraft]) -> ScalePlan:
        """Records what was decided under an epoch, and returns the plan that says so; Deposed if that is over."""

        def write(connection: Connection) -> ScalePlan | None:
            plan = scale_plans.record(connection, epoch, drafts)
            if plan and plan.is_new:
                events.record(connection, [_propose(row) for row in plan.rows if _is_newly_proposed(row)])
            return plan

        plan = self.database.write(write)
        if plan is None:
            raise Deposed(f"epoch {epoch} is over")
        return plan

    def begin_write(self, epoch: int, row: ScaleRow, version: str) -> bool:
        """Records that the row is about to be written at this version of the object; False if it must not be."""
        return self.database.write(lambda connection: scale_plans.begin_write(connection, epoch, row, version))

    def settle(self, epoch: int, row: ScaleRow, state: ScaleState, outcome: str, asked_seconds: float = 0.0) -> None:
        """Records what became of a row; Deposed if the epoch is over: then the next leader reads the cluster."""
        outcome = clean_text(outcome)

        def write(connection: Connection) -> bool | None:
            is_settled = scale_plans.settle(connection, epoch, row, state, outcome, asked_seconds)
            if is_settled:
                message = f"{row.target}: {row.replicas} -> {row.wanted} replicas, by plan {row.generation}"
                text = f"{message}; {outcome}" if outcome else message
                found = event_of(REASONS[state], text, kind=KIND, name=str(row.target), about=str(row.generation))
                events.record(connection, [found])
            return is_settled

        if self.database.write(write) is None:
            raise Deposed(f"epoch {epoch} is over")

    def forget(self, days: float) -> None:
        """Drops old plans, and of what is left the rows that are too many."""
        drops: tuple[tuple[int, Callable[[Connection], int]], ...] = (
            (MOST_FORGOTTEN, lambda connection: scale_history.forget_old(connection, days, MOST_FORGOTTEN)),
            (MOST_ROWS, lambda connection: scale_history.forget_repeated(connection, NEWEST_PLANS, MOST_ROWS)),
            (MOST_ROWS, lambda connection: scale_history.forget_most(connection, MOST_OF_WORKLOAD, MOST_ROWS)),
        )
        for most, drop in drops:
            while self.epoch and self.database.write(drop) == most:
                pass


def _is_newly_proposed(row: ScaleRow) -> bool:
    return row.state is ScaleState.PROPOSED and row.since == row.generation


def _propose(row: ScaleRow) -> NewEvent:
    message = f"{row.target}: {row.replicas} -> {row.wanted} replicas, by plan {row.generation}; {row.why}"
    return event_of(Reason.REPLICAS_PROPOSED, message, kind=KIND, name=str(row.target))
