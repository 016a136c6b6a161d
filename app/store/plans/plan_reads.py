"""Plans and cycles for people: pages of history, and what is asked of the leader about one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from app.store.database import versions
from app.store.database.database import statement
from app.store.plans.plans import IN_FORCE

STREAM = "wake"
HEAD = """generation, epoch, at, lane, state, reason, message, base, method, cost, bound, gap, changes, services,
        decided_by, decided_at, asked, rollout"""

PAGE = statement(
    "page_of_plans",
    f"SELECT {HEAD} FROM plan WHERE generation < :before ORDER BY generation DESC LIMIT :limit",
)
PAGE_OF_TENANT = statement(
    "page_of_plans_of_tenant",
    f"""
    SELECT {HEAD} FROM plan
    WHERE generation < :before AND EXISTS (SELECT FROM unnest(services) AS name WHERE starts_with(name, :prefix))
    ORDER BY generation DESC LIMIT :limit
    """,
)
HEAD_OF = statement("head_of_plan", f"SELECT {HEAD} FROM plan WHERE generation = :generation")
NEWEST_IN_FORCE = statement(
    "newest_plan_in_force",
    "SELECT generation FROM plan WHERE state = ANY(CAST(:states AS text[])) ORDER BY generation DESC LIMIT 1",
)
NEWEST = statement("newest_plan", "SELECT max(generation) FROM plan")
CYCLES = statement(
    "newest_cycles",
    """
    SELECT id, at, epoch, outcome, reason, message, generation FROM cycle
    WHERE (CAST(:until AS timestamptz) IS NULL OR at <= CAST(:until AS timestamptz)) ORDER BY id DESC LIMIT :limit
    """,
)
# Each guarded by the state that it expects: of two who ask at once, or of one who asks too late, one is refused.
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
        'at', moment())) WHERE generation = :generation RETURNING generation
    """,
)
WAITING = statement("newest_plan_waiting", "SELECT max(generation) FROM plan WHERE state = 'proposed'")
ANSWERED = statement("asked_of_plan_answered", "UPDATE plan SET asked = asked - :what WHERE generation = :generation")
LOCKED = statement("plan_for_update", "SELECT state FROM plan WHERE generation = :generation FOR UPDATE")


def page(connection: Connection, before: int, limit: int, tenant: str = "") -> list[dict[str, Any]]:
    """Plans older than `before`, newest first; with a tenant those that changed something of its own."""
    values = {"before": before, "limit": limit, "prefix": f"{tenant}/"}
    rows = connection.execute(PAGE_OF_TENANT if tenant else PAGE, values)
    return [dict(row._mapping) for row in rows]


def head(connection: Connection, generation: int) -> dict[str, Any] | None:
    """A plan without its body."""
    row = connection.execute(HEAD_OF, {"generation": generation}).one_or_none()
    return dict(row._mapping) if row else None


def in_force(connection: Connection) -> int:
    """The generation that nodes are brought to; 0 where there is none."""
    return int(connection.execute(NEWEST_IN_FORCE, {"states": list(IN_FORCE)}).scalar() or 0)


def newest(connection: Connection) -> int:
    """The last decision of all, whatever its state; 0 where there is none."""
    return int(connection.execute(NEWEST).scalar() or 0)


def cycles(connection: Connection, limit: int, until: Any = None) -> list[dict[str, Any]]:
    """The newest cycles, newest first; those up to a moment, where one is given."""
    rows = connection.execute(CYCLES, {"limit": limit, "until": until})
    return [dict(row._mapping) for row in rows]


def state_of(connection: Connection, generation: int) -> str | None:
    """The plan's state, which stays so until the transaction ends."""
    found: str | None = connection.execute(LOCKED, {"generation": generation}).scalar()
    return found


def move(
    connection: Connection, generation: int, froms: Sequence[str], to: str, by: str, message: str | None = None
) -> bool:
    """From one of these states to another, and wake the leader; False where it is in none of them."""
    values = {"generation": generation, "froms": list(froms), "to": to, "by": by, "message": message}
    moved = connection.execute(MOVE, values).scalar() is not None
    if moved:
        wake(connection)
    return moved


def newest_waiting(connection: Connection) -> int:
    """The newest plan that waits for approval; 0 where none does."""
    return connection.execute(WAITING).scalar() or 0


def answered(connection: Connection, generation: int, what: str) -> None:
    """What was asked has its answer."""
    connection.execute(ANSWERED, {"generation": generation, "what": what})


def ask(connection: Connection, generation: int, what: str, by: str) -> bool:
    """Ask the leader for something that only it can do, and wake it."""
    asked = connection.execute(ASK, {"generation": generation, "what": what, "by": by}).scalar() is not None
    if asked:
        wake(connection)
    return asked


def wake(connection: Connection) -> None:
    """The leader looks at once, and not at its next turn."""
    versions.advance(connection, STREAM, versions.lock(connection, STREAM) + 1)
