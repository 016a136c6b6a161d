"""Plans with their snapshots and the progress of their rollout; and every cycle, even if it changed nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from app.manifests.model import Fields
from app.store.database import lease, versions
from app.store.database.database import TRANSACTION_IDENTITY, SqlRow, note_transaction, statement
from app.store.plans import pieces
from solvers.planning.certificate_wire import OtherPlanWire

STREAM = "plan"
IN_FORCE = ("rolling", "paused", "done", "stopped", "aborted")
IS_IN_FORCE = f"state IN ({', '.join(map(repr, IN_FORCE))})"  # not a parameter: an index has this condition

INSERT = statement(
    "insert_plan",
    """
    INSERT INTO plan (generation, epoch, at, lane, state, reason, message, base, snapshot, body, desired, method, seed,
                      work, solved_by, cost, bound, gap, changes, services, others)
    VALUES (:generation, :epoch, moment(), :lane, :state, :reason, :message, :base, CAST(:snapshot AS jsonb), :body,
            :desired, :method, :seed, :work, CAST(:solved_by AS jsonb), :cost, :bound, :gap, CAST(:changes AS jsonb),
            CAST(:services AS text[]), CAST(:others AS jsonb))
    """,
)
# Only the newest plan is in force; proposals of an older snapshot are overtaken. What says why a plan was made stays.
SUPERSEDE = statement(
    "supersede_plans",
    """
    UPDATE plan SET state = CASE WHEN state = 'proposed' THEN 'expired' ELSE 'superseded' END, decided_at = moment(),
        message = CASE WHEN message = '' AND reason IN ('', 'cycle') THEN 'plan ' || :generation || ' took its place'
                       ELSE message END
    WHERE generation < :generation AND state = ANY(CAST(:states AS text[]))
    """,
)
NEWEST_IN_FORCE = f"""
    SELECT generation, state, desired, body, rollout, lane, at, coalesce(decided_at, at) AS rolling_since,
           asked ? 'rollback' AS is_unwanted,
           (SELECT rollout FROM plan AS earlier WHERE earlier.generation < plan.generation AND rollout ? 'pending'
            ORDER BY generation DESC LIMIT 1) AS inherited
    FROM plan WHERE {IS_IN_FORCE} ORDER BY generation DESC LIMIT 1
"""
NEWEST = statement("plan_in_force", NEWEST_IN_FORCE)
# Operators change the state too: a plan that was paused or aborted meanwhile stays so.
SETTLE = statement(
    "settle_rollout",
    """
    UPDATE plan SET state = :state, rollout = CAST(:rollout AS jsonb), message = coalesce(:message, message),
        desired = coalesce(:desired, desired)
    WHERE generation = :generation AND state = :before
    """,
)
OTHERS = statement(
    "plans_of_other_planners",
    "SELECT others, extract(epoch FROM moment() - at) AS age_seconds FROM plan WHERE generation = :generation",
)
PROVEN = statement(
    "shapes_proven", "SELECT DISTINCT jsonb_array_elements_text(rollout -> 'proven') FROM plan WHERE rollout ? 'proven'"
)
ROW = statement(
    "plan",
    """
    SELECT at, lane, state, base, snapshot, body, desired, solved_by FROM plan WHERE generation = :generation
    """,
)
# The lease stays this epoch's until the transaction ends.
CYCLE = statement(
    "insert_cycle",
    f"""
    WITH held AS MATERIALIZED (SELECT FROM lease WHERE name = 'planner' AND epoch = :epoch FOR SHARE)
    INSERT INTO cycle (at, epoch, outcome, reason, message, generation, snapshot)
    SELECT moment(), :epoch, :outcome, :reason, :message, CAST(:generation AS bigint), CAST(:snapshot AS jsonb)
    FROM held
    RETURNING {TRANSACTION_IDENTITY}
    """,
)


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A plan about to be recorded; its bodies are JSON."""

    lane: str
    state: str
    body: bytes
    desired: bytes
    snapshot: Sequence[bytes]  # its parts, each JSON
    reason: str = ""
    message: str = ""
    base: int = 0
    method: str = ""
    seed: int = 0
    work: int = 0
    solved_by: Fields = field(default_factory=dict)
    cost: float | None = None
    bound: float | None = None
    gap: float | None = None
    changes: Fields = field(default_factory=dict)
    services: Sequence[str] = ()
    others: Sequence[OtherPlanWire] = ()  # of other planners, for the same problem


@dataclass(frozen=True, slots=True)
class PlanInForce:
    """The plan that nodes are being brought to."""

    generation: int
    state: str
    desired: bytes  # the hash of the desired state of every node
    body: bytes  # the hash of the plan
    rollout: Fields  # the progress of its rollout; empty before the first step
    inherited: Fields  # the progress of the plan before it
    lane: str
    at: datetime
    rolling_since: datetime  # while it is rolled out: when it was recorded, approved or last resumed
    is_unwanted: bool = False  # an operator asked to go back to the plan before it

    @property
    def progress(self) -> Fields:
        """The progress from which its rollout goes on: that of the plan before it until its first step."""
        return self.rollout if "pending" in self.rollout else self.inherited


class StoredPlanRow(NamedTuple):
    """What a plan was made from and by; `snapshot`, `body` and `desired` are hashes of pieces."""

    at: datetime
    lane: str
    state: str
    base: int | None
    snapshot: list[str]
    body: bytes
    desired: bytes
    solved_by: Fields


class Overtaken(Exception):
    """Another decision was recorded after this one's snapshot was taken."""


def record(connection: Connection, epoch: int, draft: PlanDraft) -> int | None:
    """Records the plan and wakes those that wait for plans; returns its generation, or None if a newer epoch won.

    Raises Overtaken if it was not made from the plan that is in force now, or would take the place of one that a person
    has paused: only a rollback, which a person asks for, may.
    """
    generation = lease.next_generation(connection, epoch)
    if generation is None:
        return None
    current = read_plan_in_force(connection)
    if (current.generation if current else 0) != draft.base:
        raise Overtaken(f"plan {current.generation if current else 0} is in force, and not plan {draft.base}")
    if current and current.is_unwanted and draft.lane != "rollback":
        raise Overtaken(f"plan {current.generation} is to be undone first")
    if current and current.state == "paused" and draft.state in IN_FORCE and draft.lane != "rollback":
        raise Overtaken(f"a person has paused plan {current.generation}")
    body, desired, *parts = pieces.put(connection, [draft.body, draft.desired, *draft.snapshot])
    connection.execute(
        INSERT,
        {
            "generation": generation,
            "epoch": epoch,
            "lane": draft.lane,
            "state": draft.state,
            "reason": draft.reason,
            "message": draft.message,
            "base": draft.base or None,
            "snapshot": _json([part.hex() for part in parts]),
            "body": body,
            "desired": desired,
            "method": draft.method,
            "seed": draft.seed,
            "work": draft.work,
            "solved_by": _json(draft.solved_by),
            "cost": draft.cost,
            "bound": draft.bound,
            "gap": draft.gap,
            "changes": _json(draft.changes),
            "services": list(draft.services),
            "others": _json(draft.others),
        },
    )
    connection.execute(SUPERSEDE, {"generation": generation, "states": _list_ended_states(draft.state)})
    versions.lock(connection, STREAM)
    versions.advance(connection, STREAM, generation)
    return generation


def _list_ended_states(state: str) -> list[str]:
    """Returns the states that a new plan ends; an advisory plan ends none."""
    if state in IN_FORCE:
        return ["proposed", "rolling", "paused"]
    return ["proposed"] if state == "proposed" else []


def read_plan_in_force(connection: Connection) -> PlanInForce | None:
    """Returns the plan in force; the desired state is in pieces."""
    row = connection.execute(NEWEST).one_or_none()
    return None if row is None else plan_of(row)


def plan_of(row: SqlRow) -> PlanInForce:
    """Returns the plan of a row of `NEWEST_IN_FORCE`."""
    return PlanInForce(
        row.generation,
        row.state,
        bytes(row.desired),
        bytes(row.body),
        row.rollout,
        row.inherited or {},
        row.lane,
        row.at,
        row.rolling_since,
        row.is_unwanted,
    )


def read_others(connection: Connection, generation: int) -> tuple[Sequence[OtherPlanWire], float]:
    """Returns what plans of other planners were stored beside this one, and the seconds since then."""
    row = connection.execute(OTHERS, {"generation": generation}).one_or_none()
    return (row.others, float(row.age_seconds)) if row else ((), 0.0)


def settle(
    connection: Connection, generation: int, before: str, state: str, rollout: Fields,
    message: str | None = None, desired: bytes | None = None,
) -> bool:  # fmt: skip
    """Records the progress of a rollout; False if its state is no longer `before`.

    `desired` replaces the plan's desired state if the rollout ends in another.
    """
    held = pieces.put(connection, [desired])[0] if desired is not None else None
    values = {
        "generation": generation, "before": before, "state": state, "rollout": _json(rollout), "message": message,
        "desired": held,
    }  # fmt: skip
    return bool(connection.execute(SETTLE, values).rowcount)


def read_proven_shapes(connection: Connection) -> frozenset[str]:
    """Returns the shapes whose first instance passed its trial."""
    return frozenset(connection.scalars(PROVEN))


def read_row(connection: Connection, generation: int) -> StoredPlanRow | None:
    """Returns a plan's row."""
    row = connection.execute(ROW, {"generation": generation}).one_or_none()
    return None if row is None else StoredPlanRow(*row)


def record_cycle(
    connection: Connection, epoch: int, outcome: str, *, reason: str = "", message: str = "",
    generation: int | None = None, snapshot: Sequence[bytes] = (),
) -> bool:  # fmt: skip
    """Records a cycle, with its snapshot if its parts are given; False if a newer epoch won."""
    parts = [part.hex() for part in pieces.put(connection, snapshot)] if snapshot else []
    row = connection.execute(
        CYCLE,
        {
            "epoch": epoch, "outcome": outcome, "reason": reason, "message": message, "generation": generation,
            "snapshot": _json(parts),
        },
    ).one_or_none()  # fmt: skip
    if row is not None:
        note_transaction(connection, row.xid, row.checkpoint)
    return row is not None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
