"""Plans for replicas: recorded by the leading scaler before it writes, and settled by what the cluster answered.

A write is begun in Postgres first, with the version of the object that it replaces. The cluster takes it at that
version alone, so it takes effect once at most, however often it is repeated. While its outcome is unknown, later
plans leave the workload alone: no older number can follow a newer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from sqlalchemy import Connection

from app.store.database import clock, lease
from app.store.database.database import SqlRow, statement
from app.store.database.lease import SCALER
from app.store.plans import scale_pause
from app.store.plans.scale_rows import ScaleDraft, ScalePlan, ScaleRow, ScaleState, ScaleTarget
from app.store.plans.scale_standing import differs_from, make_row

FIRST_WAIT_SECONDS = 5.0  # after a write that was refused; twice as long after each that follows
LONGEST_WAIT_SECONDS = 300.0
MOST_ASKED_SECONDS = 3600.0  # of a wait that the cluster asks for

_COLUMNS = """generation, namespace, kind, name, since, service, mode, replicas, wanted, why, hold, object_generation,
        uid, state, decided_by, decided_at, resource_version, written_at, settled_at, outcome, resumes, is_blind, tries,
        retry_at"""
_THIS = "generation = :generation AND namespace = :namespace AND kind = :kind AND name = :name"
INSERT_PLAN = statement(
    "insert_scale_plan",
    """
    WITH made AS MATERIALIZED (SELECT moment() AS at)
    INSERT INTO scale_plan (generation, epoch, at, confirmed_at) SELECT :generation, :epoch, at, at FROM made
    """,
)
INSERT_ROWS = statement(
    "insert_scale_decisions",
    """
    INSERT INTO scale_decision (generation, namespace, kind, name, since, service, mode, replicas, wanted, why, hold,
        object_generation, uid, state, decided_by, decided_at, outcome, settled_at, resumes, is_blind, tries, retry_at)
    SELECT :generation, namespace, kind, name, since, service, mode, replicas, wanted, why, hold,
        object_generation, uid, state, decided_by, decided_at, outcome, settled_at, resumes, is_blind, tries, retry_at
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS decided (
        namespace text, kind text, name text, since bigint, service text, mode text, replicas int, wanted int, why text,
        hold text, object_generation bigint, uid text, state text, decided_by text,
        decided_at timestamptz, outcome text, settled_at timestamptz, resumes text, is_blind boolean, tries int,
        retry_at timestamptz)
    """,
)
CONFIRM = statement(
    "confirm_scale_plan", "UPDATE scale_plan SET confirmed_at = moment() WHERE generation = :generation"
)  # fmt: skip
OVERTAKE = statement(
    "overtake_scale_decisions",
    """
    UPDATE scale_decision SET state = 'overtaken', settled_at = moment(),
        outcome = 'plan ' || :generation || ' took its place'
    WHERE state IN ('proposed', 'approved') AND generation < :generation
    """,
)
HEAD = statement(
    "scale_plan",
    """
    SELECT generation, epoch, at, confirmed_at, moment() AS read_at FROM scale_plan
    WHERE generation = coalesce(CAST(:generation AS bigint), (SELECT max(generation) FROM scale_plan))
    """,
)
ROWS = statement(
    "scale_decisions",
    f"""
    SELECT {_COLUMNS} FROM scale_decision WHERE generation = :generation ORDER BY namespace, kind, name
    """,
)
WRITING = statement(
    "scale_decisions_in_doubt",
    f"SELECT {_COLUMNS} FROM scale_decision WHERE state = 'writing' ORDER BY generation, namespace, kind, name",
)
WRITTEN = statement(
    "scale_decisions_written",
    """
    SELECT DISTINCT namespace, kind, name FROM scale_decision
    WHERE state = 'written' AND settled_at > moment() - CAST(:seconds AS float8) * interval '1 second'
    """,
)
BEGIN_WRITE = statement(
    "begin_scale_write",
    f"""
    UPDATE scale_decision SET state = 'writing', resource_version = :resource_version, written_at = moment()
    WHERE {_THIS} AND (state = 'writing' OR state IN ('approved', 'refused') AND coalesce(retry_at <= moment(), true))
        AND generation = (SELECT max(generation) FROM scale_plan) AND NOT EXISTS (SELECT FROM scale_pause)
    """,
)
SETTLE = statement(
    "settle_scale_write",
    f"""
    UPDATE scale_decision SET state = :state, outcome = :outcome, settled_at = moment(),
        tries = CASE WHEN :state = 'refused' THEN tries + 1 ELSE 0 END,
        retry_at = CASE WHEN :state = 'refused' THEN moment() + CAST(:wait AS float8) * interval '1 second' END
    WHERE {_THIS} AND state IN ('approved', 'refused', 'writing')
    """,
)
DECIDE = statement(
    "decide_scale_decision",
    f"""
    UPDATE scale_decision SET state = :state, decided_by = :by, decided_at = moment()
    WHERE {_THIS} AND (state = 'proposed' OR (state IN ('approved', 'refused') AND :state = 'rejected'))
    """,
)


def record(connection: Connection, epoch: int, drafts: Sequence[ScaleDraft]) -> ScalePlan | None:
    """Records what was decided, as a new plan if it differs from the newest; None if a newer epoch won.

    An epoch begins with a plan of its own.
    """
    if not lease.is_newest(connection, epoch, SCALER):
        return None
    newest, now = read_plan(connection), clock.moment(connection)
    if scale_pause.find(connection):
        drafts = [replace(draft, mode="advisory") for draft in drafts]
    if newest and newest.epoch == epoch and not differs_from(newest, drafts, find_writing(connection)):
        connection.execute(CONFIRM, {"generation": newest.generation})
        return read_plan(connection)
    generation = lease.next_generation(connection, epoch, SCALER)
    if generation is None:
        return None
    # People approve and reject under the lease's row, which is ours alone from here on: nothing they said is missed.
    newest = read_plan(connection)
    before = {row.target: row for row in newest.rows} if newest else {}
    writing = {row.target: row for row in find_writing(connection)}
    rows = [make_row(draft, before.get(draft.target), writing.get(draft.target), generation, now) for draft in drafts]
    connection.execute(INSERT_PLAN, {"generation": generation, "epoch": epoch})
    connection.execute(INSERT_ROWS, {"generation": generation, "rows": msgspec.json.encode(rows).decode()})
    connection.execute(OVERTAKE, {"generation": generation})
    return read_plan(connection)


def begin_write(connection: Connection, epoch: int, row: ScaleRow, resource_version: str) -> bool:
    """Records that the row is about to be written at this version of the object; False if it must not be.

    It must not while scalers are paused, under another epoch, or if a newer plan was recorded, whatever that says. A
    transaction that records one waits for this one, and this one for it. One whose version was found to be gone begins
    again at the next version.
    """
    if not lease.is_newest(connection, epoch, SCALER):
        return False
    values = {**_key(row), "resource_version": resource_version}
    return connection.execute(BEGIN_WRITE, values).rowcount == 1


def settle(
    connection: Connection, epoch: int, row: ScaleRow, state: ScaleState, outcome: str, asked_seconds: float = 0.0
) -> bool | None:
    """Records what became of a write; None under another epoch, whose leader settles it; False if it was rejected.

    What was refused is tried again after as long as the cluster asks, and longer after each time.
    """
    if not lease.is_newest(connection, epoch, SCALER):
        return None
    values = {"state": state, "outcome": outcome, "wait": find_wait_seconds(row.tries, asked_seconds)}
    return connection.execute(SETTLE, {**_key(row), **values}).rowcount == 1


def find_wait_seconds(tries: int, asked_seconds: float = 0.0) -> float:
    """Returns how long nothing is tried after so many tries in a row and one more that were refused."""
    usual = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(tries, 30))
    return max(usual, min(asked_seconds, MOST_ASKED_SECONDS))


def decide(connection: Connection, row: ScaleRow, state: ScaleState, by: str) -> bool:
    """Records what a person says of a row; False if that comes too late. What is approved can still be rejected."""
    return connection.execute(DECIDE, {**_key(row), "state": state, "by": by}).rowcount == 1


def lock_plans(connection: Connection) -> None:
    """Lets no new plan be recorded before the transaction ends."""
    lease.hold(connection, SCALER)


def read_plan(connection: Connection, generation: int | None = None) -> ScalePlan | None:
    """Returns a plan, by default the newest; None if there is none."""
    head = connection.execute(HEAD, {"generation": generation}).one_or_none()
    if head is None:
        return None
    rows = connection.execute(ROWS, {"generation": head.generation})
    return ScalePlan(*[*head, tuple(map(_read_row, rows)), scale_pause.find(connection)])


def find_writing(connection: Connection) -> list[ScaleRow]:
    """Returns the rows whose write has no known outcome, the oldest first."""
    return [_read_row(row) for row in connection.execute(WRITING)]


def find_written(connection: Connection, seconds: float) -> set[ScaleTarget]:
    """Returns the workloads of which a write was known to be done within so many seconds, no matter who led."""
    return {ScaleTarget(*row) for row in connection.execute(WRITTEN, {"seconds": seconds})}


def _key(row: ScaleRow) -> dict[str, object]:
    return {"generation": row.generation, **row.target._asdict()}


def _read_row(row: SqlRow) -> ScaleRow:
    generation, namespace, kind, name, *rest = row
    found = ScaleRow(generation, ScaleTarget(namespace, kind, name), *rest)
    object.__setattr__(found, "state", ScaleState(found.state))
    return found
