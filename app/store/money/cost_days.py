"""The cost of each day by tenant, or by service and job: the most expensive by name, the others as one sum."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import statement


@dataclass(frozen=True, slots=True)
class DayCost:
    """The cost of a UTC day; `name` is a tenant, tenant/service or tenant/job, empty for all that are not named."""

    day: datetime
    name: str
    cost: float


# Idle parts of GPUs and GPUs without load belong to no tenant: their kind is their name.
_DAYS = """
    WITH named AS MATERIALIZED (
        SELECT day, CASE kind WHEN 'used' THEN {name} ELSE '__' || kind || '__' END AS name, sum(nano) AS nano
        FROM cost_day
        WHERE day >= CAST(:since AS timestamptz) AND day <= CAST(:until AS timestamptz) {{of_tenant}}
        GROUP BY 1, 2
    ), ranked AS (
        SELECT name, row_number() OVER (ORDER BY sum(nano) DESC, name) <= :most AS is_named FROM named GROUP BY name
    )
    SELECT day, CASE WHEN is_named THEN name ELSE '' END AS name, CAST(sum(nano) AS double precision) / 1e9 AS cost
    FROM named JOIN ranked USING (name) GROUP BY 1, 2 ORDER BY 1, 2
"""
_BY_TENANT = _DAYS.format(name="tenant")
_BY_WORK = _DAYS.format(name="tenant || '/' || service || job")
_OF_TENANT = "AND tenant = :tenant AND kind = 'used'"
BY_TENANT = statement("cost_days_by_tenant", _BY_TENANT.format(of_tenant=""))
BY_WORK = statement("cost_days_by_work", _BY_WORK.format(of_tenant=""))
BY_WORK_OF_TENANT = statement("cost_days_by_work_of_tenant", _BY_WORK.format(of_tenant=_OF_TENANT))


def sum_by_tenant(connection: Connection, since: datetime, until: datetime, most: int) -> list[DayCost]:
    """Returns the cost of these days by tenant, the oldest first."""
    rows = connection.execute(BY_TENANT, {"since": since, "until": until, "most": most})
    return [DayCost(*row) for row in rows]


def sum_by_work(connection: Connection, since: datetime, until: datetime, most: int, tenant: str) -> list[DayCost]:
    """Returns the cost of these days by service and job, the oldest first; all, or a tenant's."""
    values = {"since": since, "until": until, "most": most, "tenant": tenant}
    return [DayCost(*row) for row in connection.execute(BY_WORK_OF_TENANT if tenant else BY_WORK, values)]
