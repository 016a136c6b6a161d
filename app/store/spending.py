"""What tenants have used in this month: GPU-hours by node, an estimate until money has a ledger of its own."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from app.store.database import statement

# Two ranges, each by its own index: what is open, and what ended in the month.
THIS_MONTH = statement(
    "gpu_hours_of_tenants",
    """
    WITH month AS (SELECT date_trunc('month', moment(), 'UTC') AS began, moment() AS now),
    used AS (
        SELECT tenant, node, sm_percent, dedicated, started_at, now AS ended_at, began
        FROM month, usage_interval WHERE usage_interval.ended_at IS NULL
        UNION ALL
        SELECT tenant, node, sm_percent, dedicated, started_at, ended_at, began
        FROM month, usage_interval WHERE usage_interval.ended_at >= month.began
    )
    SELECT tenant, node, sum(
        CASE WHEN dedicated THEN 1 ELSE least(sm_percent, 100) / 100 END
        * greatest(extract(epoch FROM ended_at - greatest(started_at, began)), 0) / 3600) AS gpu_hours
    FROM used GROUP BY tenant, node
    """,
)


@dataclass(frozen=True, slots=True)
class GpuHours:
    """What a tenant used of a node's GPUs; a dedicated GPU counts whole."""

    tenant: str
    node: str
    gpu_hours: float


def this_month(connection: Connection) -> list[GpuHours]:
    """Since the month began, UTC."""
    return [GpuHours(row.tenant, row.node, float(row.gpu_hours)) for row in connection.execute(THIS_MONTH)]
