"""The spending of tenants in this month, as far as it is accounted for."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

THIS_MONTH = statement(
    "spent_by_tenants",
    """
    SELECT tenant, CAST(sum(nano) AS bigint) AS nano FROM cost_day
    WHERE day >= date_trunc('month', (SELECT moment()), 'UTC') AND kind = 'used'
    GROUP BY tenant ORDER BY tenant
    """,
)


def this_month(connection: Connection) -> dict[str, int]:
    """Returns the spending of each tenant since the month began (UTC), in billionths."""
    return {row.tenant: row.nano for row in connection.execute(THIS_MONTH)}
