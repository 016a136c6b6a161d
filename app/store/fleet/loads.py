"""The loads of services, reported by nodes and stored in buckets of a few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement


class LoadBucket(msgspec.Struct):
    """The requests of a service in the `seconds` before `at`, and how many it answered in time."""

    tenant: str
    service: str
    at: datetime
    seconds: float
    requests: float  # the rate's share of these seconds, so not a whole number
    errors: int
    slow: float  # answers beyond the SLO, as exact as the histogram; of tokens: too late first ones or too slow
    latency_counts: Sequence[int]
    answers: float = 0.0  # all answers that the histogram counts
    source: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    paced: int = 0  # answers whose pace of tokens was compared with the promise
    pace_late: int = 0  # of those, slower
    planned: float | None = None  # requests that the plan in force was made for; None: unknown
    low: float | None = None  # the fewest requests that were forecast, as likely to be too many as `high` too few
    high: float | None = None
    bands: int = 0  # steps of ten minutes whose end this bucket saw, each with a forecast,
    bands_held: int = 0  # and those of them whose rate lay in its band
    hours_ahead: Sequence[float] = ()  # for each of the hours after this one the low, middle and high rate a second


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """The load of a service, bucket by bucket, the oldest first."""

    service: str  # tenant/name
    ats: Sequence[float]  # seconds since 1970
    seconds: Sequence[float]
    requests: Sequence[float]
    observed_seconds: float


@dataclass(frozen=True, slots=True)
class WindowAnswers:
    """A service's answers within a window."""

    service: str  # tenant/name
    seconds: float
    requests: float
    answers: float  # those in the latency histogram
    errors: float
    slow: float


@dataclass(frozen=True, slots=True)
class TokenAnswers:
    """A service's answers of some seconds whose tokens were timed; the histogram is of first tokens."""

    answers: float
    errors: float
    slow: float  # with late first tokens or a slow pace, whichever were more
    latency_counts: Sequence[int]
    paced: int
    pace_late: int


Sums = tuple[float, float, float]  # answers, errors, slow answers
WindowSums = dict[str, dict[str, Sums]]

# The windows and their names. Alerts compare a long window, which is reliable, with a short one, which ends soon.
WINDOWS = {
    "5m": timedelta(minutes=5),
    "30m": timedelta(minutes=30),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "30d": timedelta(days=30),
}


# A leader that took over within these seconds may have stored its own: the first row stays, and only it counts for the
# fleet.
KEEP = statement(
    "keep_loads",
    """
    WITH kept AS (
        INSERT INTO service_load (tenant, service, at, seconds, requests, answers, errors, latency_counts, slow, source,
            tokens_in, tokens_out, paced, pace_late, planned, low, high, bands, bands_held, hours_ahead)
        SELECT tenant, service, at, seconds, requests, answers, errors, latency_counts, slow, source, tokens_in,
               tokens_out, paced, pace_late, planned, low, high, bands, bands_held, hours_ahead
        FROM jsonb_to_recordset(CAST(:buckets AS jsonb)) AS bucket (
            tenant text, service text, at timestamptz, seconds double precision, requests double precision,
            answers double precision, errors bigint, latency_counts bigint[], slow double precision, source text,
            tokens_in bigint, tokens_out bigint, paced bigint, pace_late bigint, planned double precision,
            low double precision, high double precision, bands int, bands_held int, hours_ahead double precision[])
        ON CONFLICT (tenant, service, at) DO NOTHING
        RETURNING at, answers, errors, slow
    )
    INSERT INTO fleet_minute AS known (minute, answers, errors, slow)
    SELECT date_trunc('minute', at), sum(answers), sum(errors), sum(slow) FROM kept GROUP BY 1 ORDER BY 1
    ON CONFLICT (minute) DO UPDATE SET
        answers = coalesce(known.answers, 0) + excluded.answers, errors = coalesce(known.errors, 0) + excluded.errors,
        slow = coalesce(known.slow, 0) + excluded.slow
    """,
)
COURSES = statement(
    "courses_of_loads",
    """
    SELECT tenant || '/' || service AS service,
           array_agg(CAST(EXTRACT(EPOCH FROM at) AS double precision) ORDER BY at) AS ats,
           array_agg(seconds ORDER BY at) AS seconds,
           array_agg(requests ORDER BY at) AS requests,
           sum(seconds) AS observed_seconds
    FROM service_load
    WHERE at > moment() - CAST(:within AS interval) AND at < moment() + interval '1 minute' GROUP BY tenant, service
    """,
)
_ANSWERED = """
    SELECT tenant || '/' || service AS service, sum(seconds) AS seconds, sum(requests) AS requests,
           sum(answers) AS answers, sum(errors) AS errors, sum(slow) AS slow
    FROM (
        SELECT tenant, service, seconds, requests, answers, errors, slow
        FROM service_load WHERE at > moment() - CAST(:within AS interval) {of_tenant}
        UNION ALL
        SELECT tenant, service, seconds, requests, answers, errors, slow
        FROM service_load_hour WHERE hour > moment() - CAST(:within AS interval) {of_tenant}
    ) AS bucket
    GROUP BY tenant, service ORDER BY tenant, service
"""
_OF_TENANT = "AND tenant = :tenant"
ANSWERED = statement("answered_within", _ANSWERED.format(of_tenant=""))
ANSWERED_OF_TENANT = statement("answered_within_of_tenant", _ANSWERED.format(of_tenant=_OF_TENANT))
TOKEN_ANSWERS = statement(
    "token_answers_within",
    """
    SELECT answers, errors, slow, latency_counts, paced, pace_late FROM service_load
    WHERE tenant = :tenant AND service = :service AND at > moment() - CAST(:within AS interval)
    """,
)
# Each row falls into the shortest window that it lies in; the sums of longer windows are put together afterwards. The
# subquery is evaluated once, where the function alone would be called for each row.
_AGES = " ".join(
    f"WHEN at > (SELECT moment()) - interval '{window.total_seconds():.0f} seconds' THEN {age}"
    for age, window in enumerate(WINDOWS.values())
)
_SPENT = f"""
    SELECT tenant || '/' || service, CASE {_AGES} END AS age, sum(answers), sum(errors), sum(slow)
    FROM (
        SELECT tenant, service, at, answers, errors, slow FROM service_load WHERE true {{of_tenant}}
        UNION ALL
        SELECT tenant, service, hour, answers, errors, slow FROM service_load_hour
        WHERE hour > moment() - interval '30 days' {{of_tenant}}
    ) AS bucket
    GROUP BY tenant, service, age
"""
SPENT = statement("answered_in_windows", _SPENT.format(of_tenant=""))
SPENT_OF_TENANT = statement("answered_in_windows_of_tenant", _SPENT.format(of_tenant=_OF_TENANT))
OLDEST_HOUR = statement(
    "oldest_past_hour_of_loads",
    """
    SELECT date_trunc('hour', min(at) - interval '1 microsecond', 'UTC') FROM service_load
    WHERE at <= date_trunc('hour', moment() - CAST(:after AS interval), 'UTC')
    """,
)
# An hour of some services becomes a row each; what a later leader adds to an hour is added to its row. The hour is a
# value and has two ends: Postgres then knows that it is a small part of the table, however many hours wait.
ROLL_UP = statement(
    "roll_up_loads",
    """
    WITH chosen AS (
        SELECT DISTINCT tenant, service FROM service_load
        WHERE at > CAST(:hour AS timestamptz) AND at <= CAST(:hour AS timestamptz) + interval '1 hour' LIMIT :services
    ), old AS (
        DELETE FROM service_load USING chosen
        WHERE service_load.tenant = chosen.tenant AND service_load.service = chosen.service
            AND at > CAST(:hour AS timestamptz) AND at <= CAST(:hour AS timestamptz) + interval '1 hour'
        RETURNING service_load.*
    )
    INSERT INTO service_load_hour AS known (tenant, service, hour, seconds, requests, answers, errors, slow, tokens_in,
        tokens_out, paced, pace_late, planned, low, high, bands, bands_held)
    SELECT tenant, service, date_trunc('hour', at - interval '1 microsecond', 'UTC') AS hour, sum(seconds),
           sum(requests), sum(answers), sum(errors), sum(slow), sum(tokens_in), sum(tokens_out), sum(paced),
           sum(pace_late), CASE WHEN count(planned) = count(*) THEN sum(planned) END,
           CASE WHEN count(low) = count(*) THEN sum(low) END, CASE WHEN count(high) = count(*) THEN sum(high) END,
           sum(bands), sum(bands_held)
    FROM old GROUP BY tenant, service, hour
    ON CONFLICT (tenant, service, hour) DO UPDATE SET
        seconds = known.seconds + excluded.seconds, requests = known.requests + excluded.requests,
        answers = known.answers + excluded.answers, errors = known.errors + excluded.errors,
        slow = known.slow + excluded.slow, tokens_in = known.tokens_in + excluded.tokens_in,
        tokens_out = known.tokens_out + excluded.tokens_out, paced = known.paced + excluded.paced,
        pace_late = known.pace_late + excluded.pace_late, planned = known.planned + excluded.planned,
        low = known.low + excluded.low, high = known.high + excluded.high, bands = known.bands + excluded.bands,
        bands_held = known.bands_held + excluded.bands_held
    """,
)
FORGET = statement(
    "forget_loads",
    """
    DELETE FROM service_load_hour WHERE (tenant, service, hour) IN (
        SELECT tenant, service, hour FROM service_load_hour
        WHERE hour < moment() - CAST(:after AS interval) LIMIT :limit)
    """,
)


def keep(connection: Connection, buckets: Sequence[LoadBucket]) -> None:
    """Stores buckets; doing it twice equals doing it once."""
    if buckets:
        connection.execute(KEEP, {"buckets": msgspec.json.encode(buckets).decode()})


def histories(connection: Connection, within: timedelta) -> list[LoadHistory]:
    """Returns the recent load of every service, with which a new leader begins."""
    return [LoadHistory(*row) for row in connection.execute(COURSES, {"within": within})]


def answers_within(connection: Connection, within: timedelta, tenant: str = "") -> list[WindowAnswers]:
    """Returns how the services, all or a tenant's, answered within a window; whole hours count if they began in it."""
    sql, values = (ANSWERED_OF_TENANT, {"tenant": tenant}) if tenant else (ANSWERED, {})
    return [
        WindowAnswers(row.service, *(float(value) for value in row[1:]))
        for row in connection.execute(sql, {"within": within, **values})
    ]


def read_token_answers(connection: Connection, tenant: str, service: str, within: timedelta) -> list[TokenAnswers]:
    """Returns the buckets of a service of a language model within a window of at most two hours."""
    rows = connection.execute(TOKEN_ANSWERS, {"tenant": tenant, "service": service, "within": within})
    return [TokenAnswers(*row) for row in rows]


def count_in_windows(connection: Connection, tenant: str = "") -> WindowSums:
    """Returns answers, errors and slow answers by service, all or a tenant's, and window."""
    rows = connection.execute(SPENT_OF_TENANT, {"tenant": tenant}) if tenant else connection.execute(SPENT)
    by_age: dict[str, list[Sums]] = {}
    for service, age, answers, errors, slow in rows:
        if age is not None:
            ages = by_age.setdefault(service, [(0.0, 0.0, 0.0)] * len(WINDOWS))
            ages[age] = (float(answers), float(errors), float(slow))
    return {service: dict(zip(WINDOWS, accumulate(ages, _add), strict=True)) for service, ages in by_age.items()}


def _add(sums: Sums, more: Sums) -> Sums:
    return sums[0] + more[0], sums[1] + more[1], sums[2] + more[2]


def roll_up(connection: Connection, services: int, after: timedelta = timedelta(hours=2)) -> int:
    """Rolls the oldest hour that ended so long ago up into a row each, for some services; returns how many rows."""
    hour = connection.execute(OLDEST_HOUR, {"after": after}).scalar_one()
    return connection.execute(ROLL_UP, {"services": services, "hour": hour}).rowcount if hour else 0


def forget(connection: Connection, limit: int, after: timedelta = timedelta(days=32)) -> int:
    """Deletes some hours that no window reaches; returns how many."""
    return connection.execute(FORGET, {"limit": limit, "after": after}).rowcount
