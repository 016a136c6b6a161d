"""What pools have rented: their nodes now, and their hours since a moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.manifests.model import WrittenSpec
from app.store.database.database import statement

_STARTED = "extract(epoch FROM coalesce(joined_at, ended_at, moment()) - {begun})"
# Only live orders, which have an index of their own; one whose hook was not called yet costs nothing.
NOW = statement(
    "rented_of_pools",
    f"""
    SELECT pool.name AS pool, pool.spec AS spec, gpu_type.spec AS gpu_type, count(live.key) AS nodes,
        count(live.key) FILTER (WHERE joined_at IS NULL) AS starting,
        coalesce(sum(idle_seconds + {_STARTED.format(begun="paid_at")}), 0) / 60 AS wasted_minutes
    FROM object AS pool
    JOIN object AS gpu_type ON gpu_type.kind = 'GpuType' AND gpu_type.tenant = ''
        AND gpu_type.name = pool.spec ->> 'gpuType'
    LEFT JOIN rented_node AS live ON live.pool = pool.name AND ended_at IS NULL AND NOT returned
        AND paid_at IS NOT NULL
    WHERE pool.kind = 'Pool' GROUP BY pool.name, pool.spec, gpu_type.spec ORDER BY pool.name
    """,
)
# Idle seconds are counted over a node's life, so only those of nodes that were rented since then are known to be since.
SINCE = statement(
    "rented_since",
    f"""
    SELECT pool, sum(seconds) / 3600 AS node_hours, sum(starting + idle) / 60 AS wasted_minutes
    FROM (
        SELECT pool, CASE WHEN paid_at >= CAST(:since AS timestamptz) THEN idle_seconds ELSE 0 END AS idle,
            extract(epoch FROM coalesce(ended_at, moment()) - begun) AS seconds,
            greatest(0, {_STARTED.format(begun="begun")}) AS starting
        FROM rented_node CROSS JOIN LATERAL (SELECT greatest(paid_at, CAST(:since AS timestamptz)) AS begun) AS rental
        WHERE paid_at IS NOT NULL AND (ended_at IS NULL OR ended_at > CAST(:since AS timestamptz))) AS rented
    GROUP BY pool
    """,
)


@dataclass(frozen=True, slots=True)
class PoolNow:
    """A declared pool with its GpuType, the nodes that may be paid for now, and those of them that start."""

    pool: str
    spec: WrittenSpec
    gpu_type: WrittenSpec
    nodes: int
    starting: int
    wasted_minutes: float


@dataclass(frozen=True, slots=True)
class PoolHours:
    """The hours of a pool's nodes, and the minutes of them in which they started or nothing was on them."""

    node_hours: float
    wasted_minutes: float


def read_now(connection: Connection) -> list[PoolNow]:
    """Returns the declared pools."""
    return [
        PoolNow(row.pool, row.spec, row.gpu_type, row.nodes, row.starting, float(row.wasted_minutes))
        for row in connection.execute(NOW)
    ]


def read_hours(connection: Connection, since: datetime) -> dict[str, PoolHours]:
    """Returns by pool what was rented since then."""
    rows = connection.execute(SINCE, {"since": since})
    return {row.pool: PoolHours(float(row.node_hours), float(row.wasted_minutes)) for row in rows}
