"""The times in which copies held a node's GPUs, as the node reported them of what it was assigned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import statement


@dataclass(frozen=True, slots=True)
class GpuTenure:
    """A copy's time on a GPU, with its share of the SMs."""

    gpu: int
    tenant: str
    service: str
    job: str
    sm_percent: float
    begins: datetime
    ends: datetime  # of one that runs: up to where its node has reported


@dataclass(frozen=True, slots=True)
class ServedPlace:
    """A GPU on which a node reports a copy of a service, with the time of its oldest there."""

    node: str
    gpu: int
    since: datetime


# As in the ledger, whose it was is what the node was assigned, and after its last report nothing is known.
HELD = statement(
    "holdings_of_node",
    """
    SELECT usage.gpu, known.tenant, known.service, known.job,
           CASE WHEN usage.dedicated AND known.dedicated THEN 100.0 ELSE least(usage.sm_percent, known.sm_percent) END,
           greatest(usage.started_at, CAST(:since AS timestamptz)) AS begins,
           coalesce(usage.ended_at, state.received_at) AS ends
    FROM (
        SELECT * FROM usage_interval WHERE node = :node AND ended_at IS NULL
        UNION ALL
        SELECT * FROM usage_interval WHERE node = :node AND ended_at IS NOT NULL AND ended_at > :since
    ) AS usage
    JOIN assigned AS known USING (node, instance, gpu)
    JOIN node_state AS state USING (node)
    WHERE CAST(:tenant AS text) IN ('', known.tenant)
        AND coalesce(usage.ended_at, state.received_at) > greatest(usage.started_at, CAST(:since AS timestamptz))
    ORDER BY begins DESC, usage.gpu, known.tenant, known.service, known.job LIMIT :limit
    """,
)

# A copy ends within hours of the end of its assignment; the assignments of a service before that are many.
COPIES = statement(
    "copies_of_service",
    """
    SELECT usage.node, usage.gpu, min(usage.started_at)
    FROM assigned AS known JOIN usage_interval AS usage USING (node, instance, gpu)
    WHERE known.tenant = :tenant AND known.service = :service AND known.job = '' AND usage.ended_at IS NULL
        AND (known.withdrawn_at IS NULL OR known.withdrawn_at > moment() - interval '1 day')
    GROUP BY usage.node, usage.gpu ORDER BY usage.node, usage.gpu
    """,
)


def read_tenures(connection: Connection, node: str, since: datetime, tenant: str, limit: int) -> list[GpuTenure]:
    """Returns the newest times in which copies held GPUs of a node since a moment; a tenant's own for a tenant."""
    values = {"node": node, "since": since, "tenant": tenant, "limit": limit}
    return [GpuTenure(*row) for row in connection.execute(HELD, values)]


def read_copy_places(connection: Connection, tenant: str, service: str) -> list[ServedPlace]:
    """Returns where copies of a service run, by the reports of nodes."""
    return [ServedPlace(*row) for row in connection.execute(COPIES, {"tenant": tenant, "service": service})]
