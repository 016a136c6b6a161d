"""Plans and cycles for operators: pages of history, and requests to the leader about a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from sqlalchemy import Connection

from app.manifests.model import Fields, Free
from app.store.database import versions
from app.store.database.database import read_dicts, statement
from app.store.plans.cross_checks import PlanCheckWire
from app.store.plans.plans import IS_IN_FORCE
from app.store.world.objects import rfc3339
from app.wire import MomentText
from solvers.planning.wire import PlanChangesWire

STREAM = "wake"
MOST_SEARCHED = 1000  # plans of a tenant
HEAD = """generation, epoch, at, lane, state, reason, message, base, method, cost, bound, gap, changes, services,
        decided_by, decided_at, asked, rollout, solved_by -> 'amounts' AS amounts, cross_check"""

PAGE = statement(
    "page_of_plans",
    f"SELECT {HEAD} FROM plan WHERE generation < :before ORDER BY generation DESC LIMIT :limit",
)
PAGE_OF_TENANT = statement(
    "page_of_plans_of_tenant",
    f"""
    SELECT {HEAD} FROM own_plan JOIN plan USING (generation)
    WHERE tenant = :tenant AND generation < :before
    ORDER BY generation DESC LIMIT :limit
    """,
)
PAGE_OF_SERVICE = statement(
    "page_of_plans_of_service",
    f"""
    SELECT {HEAD} FROM plan WHERE CAST(:service AS text) = ANY(services) AND generation = ANY(ARRAY(
        SELECT generation FROM own_plan WHERE tenant = :tenant ORDER BY generation DESC LIMIT :searched))
    ORDER BY generation DESC LIMIT :limit
    """,
)
HEAD_OF = statement("head_of_plan", f"SELECT {HEAD} FROM plan WHERE generation = :generation")
NEWEST_IN_FORCE = statement(
    "newest_plan_in_force",
    f"SELECT generation FROM plan WHERE {IS_IN_FORCE} ORDER BY generation DESC LIMIT 1",
)
NEWEST = statement("newest_plan", "SELECT max(generation) FROM plan")
CYCLES = statement(
    "newest_cycles",
    """
    SELECT id, at, epoch, outcome, reason, message, generation FROM cycle ORDER BY id DESC LIMIT :limit
    """,
)
# Each is guarded by the state that it expects: the second of two requests at once, or a late one, is refused.
MOVE = statement(
    "move_plan",
    """
    UPDATE plan SET state = :to, decided_by = :by, decided_at = moment(), message = coalesce(:message, message)
    WHERE generation = :generation AND state = ANY(CAST(:froms AS text[])) RETURNING generation
    """,
)
ASK = statement(
    "ask_of_plan",
    """
    UPDATE plan SET asked = asked || jsonb_build_object(CAST(:what AS text), jsonb_build_object('by', CAST(:by AS text),
        'at', moment(), 'to', CAST(:to AS bigint))) WHERE generation = :generation RETURNING generation
    """,
)
NEWEST_WAITING = "SELECT max(generation) FROM plan WHERE state = 'proposed'"
WAITING = statement("newest_plan_waiting", NEWEST_WAITING)
ANSWERED = statement("asked_of_plan_answered", "UPDATE plan SET asked = asked - :what WHERE generation = :generation")
LOCKED = statement("plan_for_update", "SELECT state FROM plan WHERE generation = :generation FOR UPDATE")


class PlanHeadRow(TypedDict):
    """A plan without its body; `amounts` are what else it costs, `asked` the requests that wait for the leader."""

    generation: int
    epoch: int
    at: datetime
    lane: str
    state: str
    reason: str
    message: str
    base: int | None
    method: str
    cost: float | None
    bound: float | None
    gap: float | None
    changes: PlanChangesWire
    services: list[str]
    decided_by: str
    decided_at: datetime | None
    asked: Mapping[str, Fields]
    rollout: Free
    amounts: Fields | None
    cross_check: PlanCheckWire | None


class CycleWire(TypedDict):
    """A round of the planner and its outcome."""

    id: int
    at: MomentText
    epoch: int
    outcome: str
    reason: str | None
    message: str | None
    generation: int | None


def page(connection: Connection, before: int, limit: int, tenant: str = "") -> list[PlanHeadRow]:
    """Returns plans older than `before`, newest first; for a tenant those that changed something of its own."""
    values = {"before": before, "limit": limit, "tenant": tenant}
    return read_dicts(PlanHeadRow, connection.execute(PAGE_OF_TENANT if tenant else PAGE, values))


def page_of_service(connection: Connection, tenant: str, name: str, limit: int) -> list[PlanHeadRow]:
    """Returns the newest plans that changed something of a service; searches those of its tenant, up to a number."""
    values = {"tenant": tenant, "service": f"{tenant}/{name}", "searched": MOST_SEARCHED, "limit": limit}
    return read_dicts(PlanHeadRow, connection.execute(PAGE_OF_SERVICE, values))


def read_head(connection: Connection, generation: int) -> PlanHeadRow | None:
    """Returns a plan without its body."""
    return next(iter(read_dicts(PlanHeadRow, connection.execute(HEAD_OF, {"generation": generation}))), None)


def read_generation_in_force(connection: Connection) -> int:
    """Returns the generation of the plan in force; 0 if there is none."""
    return int(connection.execute(NEWEST_IN_FORCE).scalar() or 0)


def newest(connection: Connection) -> int:
    """Returns the generation of the last decision, whatever its state; 0 if there is none."""
    return int(connection.execute(NEWEST).scalar() or 0)


def cycles(connection: Connection, limit: int) -> list[CycleWire]:
    """Returns the newest cycles, newest first."""
    rows = connection.execute(CYCLES, {"limit": limit})
    return [
        {
            "id": row.id, "at": rfc3339(row.at), "epoch": row.epoch, "outcome": row.outcome, "reason": row.reason,
            "message": row.message, "generation": row.generation,
        }
        for row in rows
    ]  # fmt: skip


def state_of(connection: Connection, generation: int) -> str | None:
    """Returns the plan's state, locked until the transaction ends."""
    found: str | None = connection.execute(LOCKED, {"generation": generation}).scalar()
    return found


def change_state(
    connection: Connection, generation: int, froms: Sequence[str], to: str, by: str, message: str | None = None
) -> bool:
    """Moves the plan from one of these states to another and wakes the leader; False if it is in none of them."""
    values = {"generation": generation, "froms": list(froms), "to": to, "by": by, "message": message}
    moved = connection.execute(MOVE, values).scalar() is not None
    if moved:
        wake(connection)
    return moved


def newest_waiting(connection: Connection) -> int:
    """Returns the generation of the newest plan that waits for approval; 0 if none does."""
    return connection.execute(WAITING).scalar() or 0


def clear_request(connection: Connection, generation: int, what: str) -> None:
    """Clears the request, which has its answer."""
    connection.execute(ANSWERED, {"generation": generation, "what": what})


def store_request(connection: Connection, generation: int, what: str, by: str, to: int = 0) -> bool:
    """Stores a request that only the leader can carry out, and wakes it. `to` is another plan that it names."""
    values = {"generation": generation, "what": what, "by": by, "to": to}
    is_stored = connection.execute(ASK, values).scalar() is not None
    if is_stored:
        wake(connection)
    return is_stored


def wake(connection: Connection) -> None:
    """Wakes the leader, which then runs at once instead of at its next turn."""
    versions.advance(connection, STREAM, versions.lock(connection, STREAM) + 1)
