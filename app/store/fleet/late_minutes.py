"""How services answered minute by minute: a page says from it since when one has been late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement


@dataclass(frozen=True, slots=True)
class AnsweredSpan:
    """A minute, or where minutes are no longer kept an hour, in which a service was asked; `attained` is a share."""

    service: str  # tenant/name
    begins: datetime
    length: timedelta
    attained: float


# An hour is kept for longer than its minutes. Where a later leader added to an hour that was rolled up, both are there.
ANSWERED = statement(
    "answered_spans",
    """
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:services AS text[])) AS wanted (tenant, service)
    ), span AS (
        SELECT tenant, service, date_trunc('minute', at - interval '1 microsecond') AS begins,
               interval '1 minute' AS length, answers, errors, slow
        FROM wanted JOIN service_load USING (tenant, service) WHERE at > moment() - interval '1 day'
        UNION ALL
        SELECT tenant, service, hour, interval '1 hour', answers, errors, slow
        FROM wanted JOIN service_load_hour USING (tenant, service) WHERE hour > moment() - interval '7 days'
    )
    SELECT tenant || '/' || service, begins, length,
           greatest(0, sum(answers) - sum(slow)) / (sum(answers) + sum(errors)) AS attained
    FROM span GROUP BY tenant, service, begins, length HAVING sum(answers) + sum(errors) > 0
    ORDER BY begins
    """,
)


def read_answered_spans(connection: Connection, services: Sequence[str]) -> list[AnsweredSpan]:
    """Returns how these services, each tenant/name, answered in up to seven days, the oldest first."""
    if not services:
        return []
    named = [name.partition("/") for name in services]
    given = {"tenants": [tenant for tenant, _, _ in named], "services": [service for _, _, service in named]}
    return [AnsweredSpan(*row) for row in connection.execute(ANSWERED, given)]
