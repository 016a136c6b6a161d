"""The loads of a service, or of all services of a tenant, by steps of time: rate, planned rate, answers in time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Means over a step of time; None: nothing is known of it. `attained` is a share of 1."""

    begins: datetime
    rate: float | None  # requests per second
    planned: float | None  # the rate that the plan in force was made for
    attained: float | None
    low: float | None = None  # the edges of what was forecast ten minutes before, requests per second
    high: float | None = None
    bands: int = 0  # forecasts whose ten minutes ended in this step,
    bands_held: int = 0  # and those of them that the rate kept to


@dataclass(frozen=True, slots=True)
class HourAhead:
    """The forecast of an hour that has not begun."""

    begins: datetime
    low: float  # requests per second, as likely to be too many as `high` too few
    middle: float
    high: float


# A bucket ends at `at` and belongs to the step that it ends in; an hour begins at `hour`. Steps of an hour or more take
# hours whole; shorter ones lie in the last hours, of which buckets are kept.
_POINTS = """
    SELECT date_bin(CAST(:step AS interval), at, '1970-01-01Z') AS begins,
           sum(requests) / nullif(sum(seconds), 0) AS rate,
           CASE WHEN count(planned) = count(*) THEN sum(planned) / nullif(sum(seconds), 0) END AS planned,
           greatest(0, sum(answers) - sum(slow)) / nullif(sum(answers) + sum(errors), 0) AS attained,
           CASE WHEN count(low) = count(*) THEN sum(low) / nullif(sum(seconds), 0) END AS low,
           CASE WHEN count(high) = count(*) THEN sum(high) / nullif(sum(seconds), 0) END AS high,
           CAST(sum(bands) AS int) AS bands, CAST(sum(bands_held) AS int) AS bands_held
    FROM (
        SELECT at - interval '1 microsecond' AS at, seconds, requests, planned, answers, errors, slow, low, high,
               bands, bands_held
        FROM service_load
        WHERE tenant = :tenant {of_service}
            AND at > CAST(:since AS timestamptz) AND at <= CAST(:until AS timestamptz)
        UNION ALL
        SELECT hour, seconds, requests, planned, answers, errors, slow, low, high, bands, bands_held
        FROM service_load_hour
        WHERE tenant = :tenant {of_service}
            AND hour >= CAST(:since AS timestamptz) AND hour < CAST(:until AS timestamptz)
    ) AS load
    GROUP BY begins ORDER BY begins
"""
OF_SERVICE = statement("load_points_of_service", _POINTS.format(of_service="AND service = :service"))
OF_TENANT = statement("load_points_of_tenant", _POINTS.format(of_service=""))

HOURS_AHEAD = statement(
    "hours_ahead",
    """
    SELECT date_trunc('hour', at - interval '1 microsecond', 'UTC') AS hour, hours_ahead FROM service_load
    WHERE tenant = :tenant AND service = :service AND cardinality(hours_ahead) > 0
        AND at > CAST(:now AS timestamptz) - interval '2 hours'
    ORDER BY at DESC LIMIT 1
    """,
)


# What a service was planned for has the margin above its requests that its risk asks for.
BUSIEST = statement(
    "busiest_hours",
    """
    SELECT tenant || '/' || service, max(rate) FROM (
        SELECT tenant, service, greatest(sum(requests), sum(planned)) / sum(seconds) AS rate
        FROM (
            SELECT tenant, service, date_trunc('hour', at - interval '1 microsecond', 'UTC') AS hour, seconds, requests,
                   planned
            FROM service_load
            UNION ALL
            SELECT tenant, service, hour, seconds, requests, planned FROM service_load_hour
            WHERE hour > moment() - interval '7 days'
        ) AS load
        GROUP BY tenant, service, hour HAVING sum(seconds) >= 60
    ) AS hours
    WHERE rate > 0 AND EXISTS (
        SELECT FROM object WHERE kind = 'Service' AND object.tenant = hours.tenant AND object.name = hours.service)
    GROUP BY tenant, service ORDER BY tenant, service
    """,
)


def read_busiest_rates(connection: Connection) -> dict[str, float]:
    """Returns by service the rate of the busiest hour of the last 7 days: what it was planned for, or got if more."""
    return {service: float(rate) for service, rate in connection.execute(BUSIEST)}


def read_service_points(
    connection: Connection, tenant: str, service: str, since: datetime, until: datetime, step: timedelta
) -> list[LoadPoint]:
    """Returns a point for each step of this time of which something is known, the oldest first."""
    values = {"tenant": tenant, "service": service, "since": since, "until": until, "step": step}
    return [LoadPoint(*row) for row in connection.execute(OF_SERVICE, values)]


def read_hours_ahead(connection: Connection, tenant: str, service: str, now: datetime) -> list[HourAhead]:
    """Returns the forecasts of hours that have not begun, the next one first; none where it has none yet."""
    row = connection.execute(HOURS_AHEAD, {"tenant": tenant, "service": service, "now": now}).one_or_none()
    if row is None:
        return []
    edges = zip(row.hours_ahead[::3], row.hours_ahead[1::3], row.hours_ahead[2::3], strict=True)
    found = [HourAhead(row.hour + timedelta(hours=1 + at), *rates) for at, rates in enumerate(edges)]
    return [hour for hour in found if hour.begins > now]


def read_tenant_points(
    connection: Connection, tenant: str, since: datetime, until: datetime, step: timedelta
) -> list[LoadPoint]:
    """Returns the points of all services of a tenant together; their rates say little, as services differ."""
    values = {"tenant": tenant, "since": since, "until": until, "step": step}
    return [LoadPoint(*row) for row in connection.execute(OF_TENANT, values)]
