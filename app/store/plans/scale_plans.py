"""Plans for replicas: recorded by the leading scaler before it writes, and settled by what the cluster answered.

A write is begun in Postgres first, with the version of the object that it replaces. The cluster takes it at that
version alone, so it takes effect once at most, however often it is repeated. While its outcome is unknown, later
plans leave the workload alone: no older number can follow a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection

from app.store.database import clock, lease
from app.store.database.database import statement
from app.store.database.lease import SCALER
from app.store.plans.scale_rows import ScaleDraft, ScalePlan, ScaleRow, ScaleState, ScaleTarget

RETRY_AFTER = timedelta(minutes=5)  # a write that the cluster refused
DECIDED_ON = (ScaleState.PROPOSED, ScaleState.APPROVED, ScaleState.REJECTED)  # for one specification

_COLUMNS = """generation, namespace, kind, name, since, service, mode, replicas, wanted, why, hold, object_generation,
        uid, state, decided_by, decided_at, resource_version, written_at, settled_at, outcome"""
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
        object_generation, uid, state, decided_by, decided_at, outcome, settled_at)
    SELECT :generation, namespace, kind, name, since, service, mode, replicas, wanted, why, hold,
        object_generation, uid, state, decided_by, decided_at, outcome, settled_at
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS decided (
        namespace text, kind text, name text, since bigint, service text, mode text, replicas int, wanted int, why text,
        hold text, object_generation bigint, uid text, state text, decided_by text,
        decided_at timestamptz, outcome text, settled_at timestamptz)
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
BEGIN_WRITE = statement(
    "begin_scale_write",
    f"""
    UPDATE scale_decision SET state = 'writing', resource_version = :resource_version, written_at = moment()
    WHERE {_THIS} AND state IN ('approved', 'writing') AND generation = (SELECT max(generation) FROM scale_plan)
    """,
)
SETTLE = statement(
    "settle_scale_write",
    f"""
    UPDATE scale_decision SET state = :state, outcome = :outcome, settled_at = moment()
    WHERE {_THIS} AND state IN ('approved', 'writing')
    """,
)
DECIDE = statement(
    "decide_scale_decision",
    f"""
    UPDATE scale_decision SET state = :state, decided_by = :by, decided_at = moment()
    WHERE {_THIS} AND (state = 'proposed' OR (state = 'approved' AND :state = 'rejected'))
    """,
)
FORGET = statement(
    "forget_scale_plans",
    """
    DELETE FROM scale_plan WHERE generation IN (
        SELECT generation FROM scale_plan WHERE at < moment() - CAST(:days AS float8) * interval '1 day'
            AND generation < (SELECT max(generation) FROM scale_plan)
            AND NOT EXISTS (SELECT FROM scale_decision
                WHERE scale_decision.generation = scale_plan.generation AND state = 'writing')
        ORDER BY generation LIMIT :limit)
    """,
)


def record(connection: Connection, epoch: int, drafts: Sequence[ScaleDraft]) -> ScalePlan | None:
    """Records what was decided, as a new plan if it differs from the newest; None if a newer epoch won.

    An epoch begins with a plan of its own.
    """
    if not lease.is_newest(connection, epoch, SCALER):
        return None
    newest, now = read_plan(connection), clock.moment(connection)
    if newest and newest.epoch == epoch and not _differs(newest, drafts, find_writing(connection), now):
        connection.execute(CONFIRM, {"generation": newest.generation})
        return read_plan(connection)
    generation = lease.next_generation(connection, epoch, SCALER)
    if generation is None:
        return None
    # People approve and reject under the lease's row, which is ours alone from here on: nothing they said is missed.
    newest = read_plan(connection)
    before = {row.target: row for row in newest.rows} if newest else {}
    writing = {row.target: row for row in find_writing(connection)}
    rows = [_row(draft, before.get(draft.target), writing.get(draft.target), generation, now) for draft in drafts]
    connection.execute(INSERT_PLAN, {"generation": generation, "epoch": epoch})
    connection.execute(INSERT_ROWS, {"generation": generation, "rows": msgspec.json.encode(rows).decode()})
    connection.execute(OVERTAKE, {"generation": generation})
    return read_plan(connection)


def _differs(newest: ScalePlan, drafts: Sequence[ScaleDraft], writing: Sequence[ScaleRow], now: datetime) -> bool:
    """Returns whether anything would stand otherwise in a new plan, but for the figures in its sentences."""
    in_doubt = {row.target: row for row in writing}
    before = {row.target: row for row in newest.rows}
    if before.keys() != {draft.target for draft in drafts}:
        return True
    for draft in drafts:
        row, doubt = before[draft.target], in_doubt.get(draft.target)
        if row.state is ScaleState.WRITING:
            continue
        wanted = _hold_in_doubt(draft, doubt)
        if row.state is ScaleState.WRITTEN:
            row = _with_written(row)
        if not _is_same(row, wanted, now):
            return True
    return False


def _with_written(row: ScaleRow) -> ScaleRow:
    """Returns the row as the cluster stands after its write."""
    return replace(row, replicas=row.wanted, state=ScaleState.STEADY)


def _is_same(row: ScaleRow, draft: ScaleDraft, now: datetime) -> bool:
    if row.state in (ScaleState.WRITTEN, ScaleState.WRITING, ScaleState.OVERTAKEN):
        return False
    if row.state is ScaleState.REFUSED and row.settled_at and now >= row.settled_at + RETRY_AFTER:
        return False
    if row.state in DECIDED_ON and row.object_generation != draft.object_generation:
        return False  # with another specification a replica may be and cost anything else
    kept = (row.uid, row.service, row.mode, row.replicas, row.wanted, row.hold)
    return kept == (draft.uid, draft.service, draft.mode, draft.replicas, draft.wanted, draft.hold)


def _hold_in_doubt(draft: ScaleDraft, doubt: ScaleRow | None) -> ScaleDraft:
    """Returns the draft with the number of the write whose outcome is unknown: nothing else is wanted until it is."""
    if doubt is None:
        return draft
    hold = f"plan {doubt.generation} writes {doubt.wanted} at resource version {doubt.resource_version}: no answer yet"
    return replace(draft, wanted=doubt.wanted, hold=hold)


def _row(
    draft: ScaleDraft, before: ScaleRow | None, doubt: ScaleRow | None, generation: int, now: datetime
) -> Mapping[str, Any]:
    """Returns the columns of a new row. What a person said of the same decision still counts."""
    draft = _hold_in_doubt(draft, doubt)
    columns = {**asdict(draft), **draft.target._asdict()}
    del columns["target"]
    if before and _is_same(before, draft, now):
        kept = ("since", "state", "decided_by", "decided_at", "outcome", "settled_at")
        return {**columns, **{name: getattr(before, name) for name in kept}}
    state = _begin_state(draft)
    by, at = ("auto", now) if state is ScaleState.APPROVED else ("", None)
    return {**columns, "since": generation, "state": state, "decided_by": by, "decided_at": at, "outcome": ""}


def _begin_state(draft: ScaleDraft) -> ScaleState:
    if draft.hold:
        return ScaleState.HELD
    if draft.replicas is None or draft.wanted is None or draft.wanted == draft.replicas:
        return ScaleState.STEADY
    modes = {"advisory": ScaleState.ADVISED, "approve": ScaleState.PROPOSED, "auto": ScaleState.APPROVED}
    return modes[draft.mode]


def begin_write(connection: Connection, epoch: int, row: ScaleRow, resource_version: str) -> bool:
    """Records that the row is about to be written at this version of the object; False if it must not be.

    It must not under another epoch, or if a newer plan was recorded, whatever that says. A transaction that records one
    waits for this one, and this one for it. One whose version was found to be gone begins again at the next version.
    """
    if not lease.is_newest(connection, epoch, SCALER):
        return False
    values = {**_key(row), "resource_version": resource_version}
    return connection.execute(BEGIN_WRITE, values).rowcount == 1


def settle(connection: Connection, epoch: int, row: ScaleRow, state: ScaleState, outcome: str) -> bool | None:
    """Records what became of a write; None under another epoch, whose leader settles it; False if it was rejected."""
    if not lease.is_newest(connection, epoch, SCALER):
        return None
    return connection.execute(SETTLE, {**_key(row), "state": state, "outcome": outcome}).rowcount == 1


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
    return ScalePlan(head.generation, head.epoch, head.at, head.confirmed_at, head.read_at, tuple(map(_read_row, rows)))


def find_writing(connection: Connection) -> list[ScaleRow]:
    """Returns the rows whose write has no known outcome, the oldest first."""
    return [_read_row(row) for row in connection.execute(WRITING)]


def forget(connection: Connection, days: float, limit: int) -> int:
    """Deletes plans older than so many days; returns how many. The newest stays, and so does a write in doubt."""
    return connection.execute(FORGET, {"days": days, "limit": limit}).rowcount


def _key(row: ScaleRow) -> dict[str, Any]:
    return {"generation": row.generation, **row.target._asdict()}


def _read_row(row: Any) -> ScaleRow:
    generation, namespace, kind, name, *rest = row
    found = ScaleRow(generation, ScaleTarget(namespace, kind, name), *rest)
    object.__setattr__(found, "state", ScaleState(found.state))
    return found
