"""Views of what services were asked: latencies by the minute, and rates by the hour beside what was forecast."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.view import Column, View

# Buckets end at half a millisecond times powers of the twelfth root of ten; the last one has no end. A percentile lies
# in the bucket that reaches it.
PERCENTILES = (50, 95, 99)
REACHES = "before < total * {0} / 100.0 AND before + count >= total * {0} / 100.0"
INSIDE = "lower + (upper - lower) * (total * {0} / 100.0 - before) / count"
LATENCY = View(
    "latency",
    "Latencies of services by the minute, of the last three hours. Of a language model the first token's.",
    [
        Column("minute", "minute", "The minute, by its beginning."),
        Column("tenant", "tenant", "The tenant of the service."),
        Column("service", "service", "The service."),
        Column("answers", "CAST(max(total) AS bigint)", "Answers with a measured latency."),
        *(
            Column(
                f"p{percentile}_ms",
                f"round(CAST(max({INSIDE}) FILTER (WHERE {REACHES}) AS numeric), 3)".format(percentile),
                f"The latency within which {percentile} % of them came, in milliseconds, as if they were spread evenly "
                "within a bucket, each of which is a fifth wider than the one before it.",
            )
            for percentile in PERCENTILES
        ),
    ],
    """FROM (
    SELECT minute, tenant, service, count, sum(count) OVER whole AS total,
        sum(count) OVER (whole ORDER BY edge) - count AS before,
        CASE WHEN edge > 1 THEN 0.5 * power(10, (least(edge, 61) - 2) / 12.0) ELSE 0 END AS lower,
        0.5 * power(10, (least(edge, 60) - 1) / 12.0) AS upper
    FROM (
        SELECT minute, tenant, service, edge, sum(CAST(count AS double precision)) AS count
        FROM (
            SELECT date_trunc('minute', load.at - interval '1 microsecond') AS minute, tenant, service, latency_counts
            FROM service_load AS load
        ) AS loads, unnest(latency_counts) WITH ORDINALITY AS bucket (count, edge)
        WHERE count > 0 GROUP BY minute, tenant, service, edge
    ) AS counted
    WINDOW whole AS (PARTITION BY minute, tenant, service)
) AS histogram
GROUP BY minute, tenant, service""",
)
BANDS = "seconds, requests, planned, low, high, bands, bands_held"


def _mean(column: str) -> str:
    """Returns a rate over the hour; null where it is unknown of a part of it."""
    known = f"CASE WHEN count({column}) = count(*) THEN sum({column}) END"
    return f"round(CAST({known} / nullif(sum(seconds), 0) AS numeric), 3)"


DEMAND = View(
    "demand",
    "Requests to services by the hour, beside what was planned for and forecast, of the last 32 days.",
    [
        Column("hour", "hour", "When the hour began. Hours are those of UTC."),
        Column("tenant", "tenant", "The tenant of the service."),
        Column("service", "service", "The service."),
        Column("requests_per_second", _mean("requests"), "The mean rate while it was counted."),
        Column("planned_per_second", _mean("planned"), "The rate that plans were made for; null where it is unknown."),
        Column(
            "low_per_second", _mean("low"),
            "The mean lower edge of the forecasts ten minutes ahead: the rate was to be lower one of ten times.",
        ),
        Column(
            "high_per_second", _mean("high"),
            "The mean upper edge: the rate was to be higher one of ten times.",
        ),
        Column("forecasts", "CAST(sum(bands) AS bigint)", "Steps of ten minutes that ended, each with a forecast."),
        Column("forecasts_held", "CAST(sum(bands_held) AS bigint)", "Those of them whose rate lay between the edges."),
    ],
    f"""FROM (
    SELECT date_trunc('hour', at - interval '1 microsecond', 'UTC') AS hour, tenant, service, {BANDS} FROM service_load
    UNION ALL
    SELECT hour, tenant, service, {BANDS} FROM service_load_hour
) AS load
GROUP BY hour, tenant, service""",
)  # fmt: skip
LOAD_VIEWS = [LATENCY, DEMAND]
