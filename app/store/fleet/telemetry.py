"""Minutes of GPUs and instances: kept as reported until the minute is over, then one row each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.money.usage import MOST_POWER_W

FINISHED = timedelta(seconds=75)  # a minute and the report that ends it
QUIET = timedelta(seconds=15)  # a minute that still receives reports is not over, whatever its clock says


@dataclass(frozen=True, slots=True)
class MinuteReport:
    """One report of a node's minute; `body` is the compressed report."""

    minute: datetime
    node: str
    ordinal: int
    body: bytes


# The first minute of each day, with one descent of the index each, however many minutes wait.
DUE_DAYS = statement(
    "days_of_finished_minutes",
    """
    WITH RECURSIVE first (minute) AS (
        SELECT min(minute) FROM report_minute
        WHERE minute < (SELECT moment()) - CAST(:finished AS interval)
        UNION ALL
        SELECT (SELECT min(report_minute.minute) FROM report_minute
                WHERE report_minute.minute >= date_trunc('day', first.minute, 'UTC') + interval '24 hours'
                  AND report_minute.minute < (SELECT moment()) - CAST(:finished AS interval))
        FROM first WHERE first.minute IS NOT NULL
    )
    SELECT date_trunc('day', minute, 'UTC') AS day FROM first WHERE minute IS NOT NULL
    """,
)

# SKIP LOCKED: replicas take different rows, and a row that is being written waits for the next round. The newest first:
# a node may send a day of old minutes as fast as it likes, and those of all others still become rows in time.
FINISHED_REPORTS = statement(
    "finished_reports",
    """
    SELECT minute, node, ordinal, body FROM report_minute
    WHERE minute < (SELECT moment()) - CAST(:finished AS interval)
      AND received_at < (SELECT moment()) - CAST(:quiet AS interval)
    ORDER BY minute DESC, node DESC LIMIT :limit
    FOR UPDATE SKIP LOCKED
    """,
)
DISCARD = statement(
    "discard_reports",
    """
    DELETE FROM report_minute
    USING unnest(CAST(:minutes AS timestamptz[]), CAST(:nodes AS text[])) AS done (minute, node)
    WHERE report_minute.minute = done.minute AND report_minute.node = done.node
    """,
)
# A GPU's minute that is reported once more counts once for the fleet: `before` is as it was before this statement.
# Impossible power is not believed, as in the ledger.
EXPAND = statement(
    "expand_minutes",
    """
    WITH taken AS MATERIALIZED (
        SELECT minute, node, ordinal, gpus, instances
        FROM jsonb_to_recordset(CAST(:reports AS jsonb)) AS report (
            minute timestamptz, node text, ordinal bigint, gpus jsonb, instances jsonb)
    ), clock AS MATERIALIZED (
        SELECT moment() AS at
    ), gpus AS (
        INSERT INTO gpu_minute AS kept
        SELECT minute, node, index, ordinal, coalesce(health, 'ok'), coalesce("utilizationPercent", 0),
               coalesce("memoryUsedGib", 0), coalesce("powerMeanW", 0), coalesce("powerPeakW", 0),
               coalesce("energyCounterMj", 0), coalesce("temperatureC", 0), coalesce("smClockMhz", 0),
               coalesce("throttleReasons", '{}'), coalesce(reason, ''), coalesce(fenced, false),
               nullif(jsonb_strip_nulls(jsonb_build_object('requested', requested, 'applied', applied)), '{}')
        FROM taken, jsonb_to_recordset(gpus) AS gpu (
            index smallint, health text, "utilizationPercent" double precision,
            "memoryUsedGib" double precision, "powerMeanW" double precision, "powerPeakW" double precision,
            "energyCounterMj" bigint, "temperatureC" double precision, "smClockMhz" double precision,
            "throttleReasons" text[], reason text, fenced boolean, requested jsonb, applied jsonb)
        ON CONFLICT (node, minute, gpu) DO UPDATE SET
            ordinal = excluded.ordinal, health = excluded.health,
            utilization_percent = excluded.utilization_percent, memory_used_gib = excluded.memory_used_gib,
            power_mean_w = excluded.power_mean_w, power_peak_w = excluded.power_peak_w,
            energy_counter_mj = excluded.energy_counter_mj, temperature_c = excluded.temperature_c,
            sm_clock_mhz = excluded.sm_clock_mhz, throttle_reasons = excluded.throttle_reasons,
            reason = excluded.reason, fenced = excluded.fenced, limits = excluded.limits
        WHERE kept.ordinal < excluded.ordinal
        RETURNING minute, node, gpu, utilization_percent, power_mean_w
    ), fleet AS (
        INSERT INTO fleet_minute AS known (minute, gpus, busy_gpus, power_w)
        SELECT minute, count(*), sum(utilization_percent) / 100,
               sum(CASE WHEN power_mean_w <= :most_power_w THEN power_mean_w ELSE 0 END)
        FROM gpus
        WHERE NOT EXISTS (SELECT FROM gpu_minute AS before
                          WHERE (before.node, before.minute, before.gpu) = (gpus.node, gpus.minute, gpus.gpu))
        GROUP BY minute ORDER BY minute
        ON CONFLICT (minute) DO UPDATE SET
            gpus = coalesce(known.gpus, 0) + excluded.gpus,
            busy_gpus = coalesce(known.busy_gpus, 0) + excluded.busy_gpus,
            power_w = coalesce(known.power_w, 0) + excluded.power_w
    ), instances AS (
        INSERT INTO instance_minute AS kept
        SELECT minute, node, id, ordinal, gpu, coalesce(tenant, ''), coalesce(service, ''), coalesce(job, ''),
               coalesce("smPercent", 0), coalesce("memoryGib", 0), coalesce(requests, 0), coalesce(errors, 0),
               coalesce("latencyCounts", '{}'), coalesce("batchMean", 0), coalesce("queueMean", 0),
               coalesce("busySeconds", 0),
               nullif(jsonb_strip_nulls(jsonb_build_object(
                   'requested', requested, 'applied', applied, 'measured', measured)), '{}'),
               coalesce(source, ''), coalesce(steps, 0), coalesce("tokensIn", 0), coalesce("tokensOut", 0),
               coalesce(paced, 0), coalesce("paceLate", 0)
        FROM taken, jsonb_to_recordset(instances) AS instance (
            id text, gpu smallint, tenant text, service text, job text, "smPercent" double precision,
            "memoryGib" double precision, requests bigint, errors bigint, "latencyCounts" bigint[],
            "batchMean" double precision, "queueMean" double precision, "busySeconds" double precision,
            requested jsonb, applied jsonb, measured jsonb, source text, steps double precision,
            "tokensIn" bigint, "tokensOut" bigint, paced bigint, "paceLate" bigint)
        ON CONFLICT (node, minute, instance) DO UPDATE SET
            ordinal = excluded.ordinal, gpu = excluded.gpu, tenant = excluded.tenant,
            service = excluded.service, job = excluded.job, sm_percent = excluded.sm_percent,
            memory_gib = excluded.memory_gib, requests = excluded.requests, errors = excluded.errors,
            latency_counts = excluded.latency_counts, batch_mean = excluded.batch_mean,
            queue_mean = excluded.queue_mean, busy_seconds = excluded.busy_seconds, limits = excluded.limits,
            source = excluded.source, steps = excluded.steps, tokens_in = excluded.tokens_in,
            tokens_out = excluded.tokens_out, paced = excluded.paced, pace_late = excluded.pace_late
        WHERE kept.ordinal < excluded.ordinal
    )
    INSERT INTO pending_hour AS known (hour, touched_at, nodes, nodes_at)
    SELECT date_trunc('hour', minute, 'UTC'), min(clock.at), array_agg(DISTINCT node), min(clock.at)
    FROM taken CROSS JOIN clock GROUP BY 1 ORDER BY 1
    ON CONFLICT (hour) DO UPDATE SET
        touched_at = excluded.touched_at, nodes_at = excluded.nodes_at,
        nodes = CASE WHEN known.nodes_at = known.touched_at
                     THEN ARRAY(SELECT unnest(known.nodes) UNION SELECT unnest(excluded.nodes)) END
    """,
)

ASSIGNED = statement(
    "assigned_lately",
    """
    SELECT DISTINCT node, instance
    FROM unnest(CAST(:nodes AS text[]), CAST(:instances AS text[])) AS reported (node, instance)
    JOIN assigned USING (node, instance)
    WHERE withdrawn_at IS NULL OR withdrawn_at > (SELECT moment()) - interval '2 days'
    """,
)
NEWEST_OF_GPUS = statement(
    "newest_minutes_of_gpus",
    """
    SELECT DISTINCT ON (node, gpu) node, gpu, power_mean_w, utilization_percent
    FROM gpu_minute WHERE minute > (SELECT moment()) - interval '5 minutes'
    ORDER BY node, gpu, minute DESC
    """,
)


def newest_of_gpus(connection: Connection) -> dict[tuple[str, int], tuple[float, float]]:
    """Returns each GPU's power in its last whole minute, in watts, and how busy it was, in percent."""
    found = connection.execute(NEWEST_OF_GPUS)
    return {(row.node, row.gpu): (row.power_mean_w, row.utilization_percent) for row in found}


def days_due(connection: Connection) -> list[datetime]:
    """Returns the days whose partitions the next expansion writes to."""
    return list(connection.execute(DUE_DAYS, {"finished": FINISHED}).scalars())


def lock_finished_reports(connection: Connection, limit: int) -> list[MinuteReport]:
    """Returns the reports of past minutes, locked until the transaction ends."""
    rows = connection.execute(FINISHED_REPORTS, {"finished": FINISHED, "quiet": QUIET, "limit": limit})
    return [MinuteReport(*row) for row in rows]


def expand(connection: Connection, reports: str) -> None:
    """Stores a row for each GPU and instance of each minute.

    `reports` is JSON: [{"minute", "node", "ordinal", "gpus": [...], "instances": [...]}], fields as reported.
    """
    connection.execute(EXPAND, {"reports": reports, "most_power_w": MOST_POWER_W})


def find_assigned_lately(connection: Connection, reported: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Returns which of the (node, instance) were assigned while their minutes could still be reported."""
    pairs = {"nodes": [node for node, _ in reported], "instances": [instance for _, instance in reported]}
    return {(row.node, row.instance) for row in connection.execute(ASSIGNED, pairs)}


def discard(connection: Connection, reports: Sequence[MinuteReport]) -> None:
    """Deletes reports that were expanded."""
    keys = {"minutes": [report.minute for report in reports], "nodes": [report.node for report in reports]}
    connection.execute(DISCARD, keys)
