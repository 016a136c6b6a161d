"""How much of old plans for replicas is kept: by age, and by number for each workload, however often plans change.

A plan has a row for each workload, so one that changes at each look repeats the rows of all others. Of plans that are
not among the newest, what only repeats an earlier row goes.
"""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

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
FORGET_REPEATED = statement(
    "forget_repeated_scale_decisions",
    """
    DELETE FROM scale_decision WHERE (generation, namespace, kind, name) IN (
        SELECT generation, namespace, kind, name FROM scale_decision
        WHERE since < generation AND resource_version = ''
            AND generation < (SELECT min(generation) FROM (
                SELECT generation FROM scale_plan ORDER BY generation DESC LIMIT :plans) AS newest)
        ORDER BY generation LIMIT :limit)
    """,
)
FORGET_MOST = statement(
    "forget_scale_decisions_of_workload",
    """
    DELETE FROM scale_decision WHERE (generation, namespace, kind, name) IN (
        SELECT generation, namespace, kind, name FROM (
            SELECT generation, namespace, kind, name, state,
                row_number() OVER (PARTITION BY namespace, kind, name ORDER BY generation DESC) AS place
            FROM scale_decision) AS placed
        WHERE place > :most AND state <> 'writing' LIMIT :limit)
    """,
)


def forget_old(connection: Connection, days: float, limit: int) -> int:
    """Deletes plans older than so many days; returns how many. The newest stays, and so does a write in doubt."""
    return connection.execute(FORGET, {"days": days, "limit": limit}).rowcount


def forget_repeated(connection: Connection, plans: int, limit: int) -> int:
    """Deletes rows that repeat an earlier one, of plans before so many newest ones; returns how many."""
    return connection.execute(FORGET_REPEATED, {"plans": plans, "limit": limit}).rowcount


def forget_most(connection: Connection, most: int, limit: int) -> int:
    """Deletes the oldest rows of workloads that have more than so many; returns how many. A write in doubt stays."""
    return connection.execute(FORGET_MOST, {"most": most, "limit": limit}).rowcount
