"""What pools have rented: their nodes now, and their hours since a moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.manifests.model import WrittenSpec
from app.store.database.database import statement

# Only live orders, which have an index of their own; one whose hook was not called yet costs nothing. Orders outlive
# their pool.
NOW = statement(
    "rented_of_pools",
    """
    WITH live AS (
        SELECT pool AS name, count(*) AS nodes, count(*) FILTER (WHERE joined_at IS NULL) AS starting
        FROM rented_node WHERE ended_at IS NULL AND NOT returned AND paid_at IS NOT NULL GROUP BY pool),
    declared AS (
        SELECT pool.name, pool.spec, gpu_type.spec AS gpu_type
        FROM object AS pool JOIN object AS gpu_type ON gpu_type.kind = 'GpuType' AND gpu_type.tenant = ''
            AND gpu_type.name = pool.spec ->> 'gpuType'
        WHERE pool.kind = 'Pool')
    SELECT name AS pool, spec, gpu_type, coalesce(nodes, 0) AS nodes, coalesce(starting, 0) AS starting
    FROM declared FULL JOIN live USING (name) ORDER BY name
    """,
)
# Priced as the ledger prices nodes, at all times by the price in force, so that pools and bills know one price, and a
# deleted pool keeps what it has cost. Idle seconds are counted over a node's life, so only those of nodes that were
# rented since then are known to be since. A name has had many nodes: what is owned never overlaps, so that only its
# last row before an order and those during it are read.
SINCE = statement(
    "rented_since",
    """
    SELECT pool, sum(seconds) / 3600 AS node_hours, sum(starting + idle) / 60 AS wasted_minutes,
        coalesce(sum(nano), 0) / 1e9 AS cost
    FROM (
        SELECT node, pool, CASE WHEN paid_at >= CAST(:since AS timestamptz) THEN idle_seconds ELSE 0 END AS idle,
            extract(epoch FROM until - begun) AS seconds, begun, until,
            greatest(0, extract(epoch FROM coalesce(joined_at, until) - begun)) AS starting
        FROM rented_node CROSS JOIN LATERAL (
            SELECT greatest(paid_at, CAST(:since AS timestamptz)) AS begun,
                greatest(coalesce(ended_at, moment()), paid_at, CAST(:since AS timestamptz)) AS until) AS rental
        WHERE paid_at IS NOT NULL AND (ended_at IS NULL OR ended_at > CAST(:since AS timestamptz))) AS rented
    CROSS JOIN LATERAL (
        SELECT sum(gpus * nano_per_hour * greatest(0, extract(epoch FROM least(until, owned.valid_to, price.valid_to)
            - greatest(begun, owned.valid_from, price.valid_from)) / 3600)) AS nano
        FROM gpu_owned AS owned JOIN price USING (gpu_type, region, purchase)
        WHERE owned.node = rented.node AND owned.valid_from < until AND owned.valid_from >= coalesce((
            SELECT max(before.valid_from) FROM gpu_owned AS before
            WHERE before.node = rented.node AND before.valid_from <= begun), '-infinity')) AS paid
    GROUP BY pool
    """,
)


@dataclass(frozen=True, slots=True)
class PoolNow:
    """A pool with its GpuType, if it is declared, the nodes that may be paid for now, and those of them that start."""

    pool: str
    spec: WrittenSpec | None
    gpu_type: WrittenSpec | None
    nodes: int
    starting: int


@dataclass(frozen=True, slots=True)
class PoolHours:
    """The hours of a pool's nodes, the minutes of them in which they started or nothing was on them, their cost."""

    node_hours: float
    wasted_minutes: float
    cost: float


def read_now(connection: Connection) -> list[PoolNow]:
    """Returns the pools that are declared or have nodes."""
    return [PoolNow(row.pool, row.spec, row.gpu_type, row.nodes, row.starting) for row in connection.execute(NOW)]


def read_hours(connection: Connection, since: datetime) -> dict[str, PoolHours]:
    """Returns by pool what was rented since then."""
    rows = connection.execute(SINCE, {"since": since})
    return {row.pool: PoolHours(float(row.node_hours), float(row.wasted_minutes), float(row.cost)) for row in rows}
