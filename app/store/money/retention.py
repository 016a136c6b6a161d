"""Deletes what money no longer looks at: usage beyond every correction, costs of days, savings of hours."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import statement

# Usage that ended 400 days ago is refused, and slices of 13 months ago are not changed. The database's triggers refuse
# to delete anything that ended later than this.
USAGE_DAYS = 430
_LONG_AGO = f"now() - interval '{USAGE_DAYS} days'"
# Node by node, each by its index. Usage that its agent has named again since goes on, whatever its row says.
FORGET_USAGE = statement(
    "forget_usage",
    f"""
    WITH RECURSIVE known (node) AS (
        (SELECT node FROM usage_interval ORDER BY node LIMIT 1)
        UNION ALL
        SELECT (SELECT node FROM usage_interval WHERE node > known.node ORDER BY node LIMIT 1)
        FROM known WHERE known.node IS NOT NULL
    )
    DELETE FROM usage_interval WHERE (node, id) IN (
        SELECT old.node, old.id FROM known CROSS JOIN LATERAL (
            SELECT node, id FROM usage_interval AS usage
            WHERE usage.node = known.node AND ended_at < {_LONG_AGO}
                AND NOT EXISTS (SELECT FROM usage_truth AS truth
                                WHERE truth.node = usage.node AND truth.id = usage.id
                                    AND (truth.ended_at IS NULL OR truth.ended_at >= {_LONG_AGO}))
            ORDER BY ended_at LIMIT :limit) AS old
        LIMIT :limit)
    """,
)
FORGET_TRUTHS = statement(
    "forget_truths_of_usage",
    f"""
    DELETE FROM usage_truth WHERE (node, id, told_at) IN (
        SELECT node, id, told_at FROM usage_truth
        WHERE told_at < {_LONG_AGO}
            AND NOT EXISTS (SELECT FROM usage_interval AS usage
                            WHERE usage.node = usage_truth.node AND usage.id = usage_truth.id)
        LIMIT :limit)
    """,
)
# What was withdrawn so long ago bills nothing that may still be reported.
FORGET_ASSIGNED = statement(
    "forget_assigned",
    f"""
    DELETE FROM assigned WHERE (node, instance, gpu) IN (
        SELECT node, instance, gpu FROM assigned WHERE withdrawn_at < {_LONG_AGO} LIMIT :limit)
    """,
)
FORGET_DAYS = statement("forget_costs_of_days", "DELETE FROM cost_day WHERE day < :moment")
FORGET_SAVINGS = statement("forget_savings", "DELETE FROM saving WHERE hour < :moment")
FORGET_RELEASES = statement("forget_releases", "DELETE FROM release_hour WHERE hour < :moment")


def forget_usage(connection: Connection, limit: int) -> int:
    """Deletes up to `limit` rows of each table of usage; returns how many of all."""
    steps = (FORGET_USAGE, FORGET_TRUTHS, FORGET_ASSIGNED)
    return sum(connection.execute(step, {"limit": limit}).rowcount for step in steps)


def forget_costs(connection: Connection, before: datetime) -> None:
    """Deletes the costs of the days before the moment."""
    connection.execute(FORGET_DAYS, {"moment": before})


def forget_savings(connection: Connection, before: datetime) -> None:
    """Deletes the savings and released GPUs of the hours before the moment."""
    connection.execute(FORGET_SAVINGS, {"moment": before})
    connection.execute(FORGET_RELEASES, {"moment": before})
