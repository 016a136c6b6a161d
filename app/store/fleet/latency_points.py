"""The latencies of a service by steps of time: histograms, from which percentiles are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement


@dataclass(frozen=True, slots=True)
class LatencyPoint:
    """The answers of a step by their latency, in the buckets that reports count them in."""

    begins: datetime
    counts: list[int] = field(default_factory=list)


# Buckets of a few seconds are kept for some hours, the hours of instances for long. An hour is read from buckets while
# there are any; a node's hour counts only for what it was assigned.
POINTS = statement(
    "latency_points",
    """
    WITH oldest AS MATERIALIZED (
        SELECT date_trunc('hour', min(at) - interval '1 microsecond', 'UTC') AS hour FROM service_load
        WHERE tenant = :tenant AND service = :service
    ), histogram AS (
        SELECT date_bin(CAST(:step AS interval), at - interval '1 microsecond', '1970-01-01Z') AS begins, latency_counts
        FROM service_load
        WHERE tenant = :tenant AND service = :service
            AND at > CAST(:since AS timestamptz) AND at <= CAST(:until AS timestamptz)
        UNION ALL
        SELECT date_bin(CAST(:step AS interval), line.hour, '1970-01-01Z'), line.latency_counts
        FROM instance_hour AS line
        WHERE tenant = :tenant AND service = :service AND CAST(:step AS interval) >= interval '1 hour'
            AND line.hour >= CAST(:since AS timestamptz) AND line.hour < CAST(:until AS timestamptz)
            AND line.hour < coalesce((SELECT hour FROM oldest), 'infinity')
            AND EXISTS (
                SELECT FROM assigned AS known WHERE known.node = line.node AND known.instance = line.instance
                    AND known.tenant = line.tenant AND known.service = line.service)
    )
    SELECT begins, edge, CAST(sum(count) AS bigint)
    FROM histogram, unnest(latency_counts) WITH ORDINALITY AS counted (count, edge)
    GROUP BY begins, edge HAVING sum(count) > 0 ORDER BY begins, edge
    """,
)


def read_latency_points(
    connection: Connection, tenant: str, service: str, since: datetime, until: datetime, step: timedelta
) -> list[LatencyPoint]:
    """Returns a histogram for each step of this time with answers, the oldest first."""
    values = {"tenant": tenant, "service": service, "since": since, "until": until, "step": step}
    found: dict[datetime, LatencyPoint] = {}
    for begins, edge, count in connection.execute(POINTS, values):
        counts = found.setdefault(begins, LatencyPoint(begins)).counts
        counts.extend([0] * (edge - len(counts)))
        counts[edge - 1] = count
    return list(found.values())
