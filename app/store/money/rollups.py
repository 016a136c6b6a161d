"""Rollups of minutes into hours, so that weeks can be read without every minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.money.usage import MOST_POWER_W

QUIET = timedelta(minutes=2)  # after the last minute received for an hour

PENDING = statement(
    "hours_to_roll_up",
    """
    SELECT hour, touched_at, CASE WHEN nodes_at = touched_at THEN nodes END AS nodes FROM pending_hour
    WHERE hour < (SELECT moment()) - interval '1 hour' - CAST(:quiet AS interval)
      AND touched_at < (SELECT moment()) - CAST(:quiet AS interval)
    ORDER BY hour LIMIT 24
    """,
)
NODES = statement(
    "nodes_of_hour",
    """
    SELECT node FROM gpu_minute WHERE minute >= :hour AND minute < :hour + interval '1 hour'
    UNION SELECT node FROM instance_minute WHERE minute >= :hour AND minute < :hour + interval '1 hour'
    ORDER BY node
    """,
)
TAKE_TURNS = statement(
    "rollups_take_turns", "SELECT pg_advisory_xact_lock(1735422581, CAST(extract(epoch FROM :hour) / 3600 AS int))"
)
CLEAR_GPUS = statement(
    "clear_gpu_hours", "DELETE FROM gpu_hour WHERE hour = :hour AND node = ANY(CAST(:nodes AS text[]))"
)
CLEAR_INSTANCES = statement(
    "clear_instance_hours",
    "DELETE FROM instance_hour WHERE hour = :hour AND node = ANY(CAST(:nodes AS text[]))",
)
# The minute before the hour has the counter from which the hour's first minute started. A counter that falls was reset
# (driver reloaded) and shows the energy since then. Impossible energy is not believed, as in the ledger:
# a single node's lie would otherwise spoil all sums.
GPUS = statement(
    "roll_up_gpus",
    f"""
    INSERT INTO gpu_hour (hour, node, gpu, minutes, utilization_percent, memory_used_gib, power_mean_w,
                          power_peak_w, energy_mj, temperature_c)
    SELECT :hour, node, gpu, count(*), avg(utilization_percent), max(memory_used_gib), avg(power_mean_w),
           max(power_peak_w),
           coalesce(sum(energy_mj) FILTER (
               WHERE energy_mj <= {MOST_POWER_W} * CAST(1000 AS bigint) * extract(epoch FROM passed)), 0),
           max(temperature_c)
    FROM (
        SELECT *, CASE WHEN energy_counter_mj < before THEN energy_counter_mj
                       ELSE energy_counter_mj - before END AS energy_mj
        FROM (SELECT *, lag(energy_counter_mj) OVER of_gpu AS before, minute - lag(minute) OVER of_gpu AS passed
              FROM gpu_minute
              WHERE node = ANY(CAST(:nodes AS text[])) AND minute >= :hour - interval '1 minute'
                AND minute < :hour + interval '1 hour'
              WINDOW of_gpu AS (PARTITION BY node, gpu ORDER BY minute)) AS minute
    ) AS minute
    WHERE minute >= :hour GROUP BY node, gpu
    """,
)
INSTANCES = statement(
    "roll_up_instances",
    """
    WITH minute AS MATERIALIZED (
        SELECT * FROM instance_minute
        WHERE node = ANY(CAST(:nodes AS text[])) AND minute >= :hour AND minute < :hour + interval '1 hour'
    ), bucket AS (
        SELECT node, instance, place, sum(count) AS count
        FROM minute, unnest(latency_counts) WITH ORDINALITY AS counted (count, place)
        GROUP BY node, instance, place
    ), histogram AS (
        SELECT node, instance, array_agg(CAST(count AS bigint) ORDER BY place) AS latency_counts
        FROM bucket GROUP BY node, instance
    ), total AS (
        SELECT node, instance, count(*) AS minutes, (array_agg(gpu ORDER BY minute DESC))[1] AS gpu,
               max(tenant) AS tenant, max(service) AS service, max(job) AS job,
               avg(sm_percent) AS sm_percent, max(memory_gib) AS memory_gib, sum(requests) AS requests,
               sum(errors) AS errors, avg(batch_mean) AS batch_mean, avg(queue_mean) AS queue_mean,
               sum(busy_seconds) AS busy_seconds
        FROM minute GROUP BY node, instance
    )
    INSERT INTO instance_hour (hour, node, instance, minutes, gpu, tenant, service, job, sm_percent, memory_gib,
                               requests, errors, latency_counts, batch_mean, queue_mean, busy_seconds)
    SELECT :hour, node, instance, minutes, gpu, tenant, service, job, sm_percent, memory_gib, requests, errors,
           coalesce(latency_counts, '{}'), batch_mean, queue_mean, busy_seconds
    FROM total LEFT JOIN histogram USING (node, instance)
    """,
)
CLEAR_NODES = statement(
    "clear_node_hours", "DELETE FROM node_hour WHERE hour = :hour AND node = ANY(CAST(:nodes AS text[]))"
)
SUMS = statement(
    "roll_up_nodes",
    """
    INSERT INTO node_hour (hour, node, gpu_minutes, busy_minutes, gib_minutes, watt_minutes)
    SELECT hour, node, sum(minutes), sum(utilization_percent / 100 * minutes), sum(memory_used_gib * minutes),
           sum(power_mean_w * minutes)
    FROM gpu_hour WHERE hour = :hour AND node = ANY(CAST(:nodes AS text[])) GROUP BY hour, node
    """,
)
FORGET = statement("forget_node_hours", "DELETE FROM node_hour WHERE hour < :moment")
DONE = statement("hour_is_rolled_up", "DELETE FROM pending_hour WHERE hour = :hour AND touched_at = :touched_at")


@dataclass(frozen=True, slots=True)
class PendingHour:
    """A past hour without recent minutes, when its last minutes came in, and from which nodes; None: any node."""

    hour: datetime
    touched_at: datetime
    nodes: Sequence[str] | None = None


def pending_hours(connection: Connection) -> list[PendingHour]:
    """Returns past hours without recent minutes."""
    return [PendingHour(*row) for row in connection.execute(PENDING, {"quiet": QUIET})]


def nodes(connection: Connection, pending: PendingHour) -> list[str]:
    """Returns the nodes whose hour has to be rolled up: late minutes of one node cost no work for the others."""
    if pending.nodes is not None:
        return sorted(pending.nodes)
    return list(connection.execute(NODES, {"hour": pending.hour}).scalars())


def roll_up(connection: Connection, hour: datetime, names: Sequence[str]) -> None:
    """Rebuilds the hour's rows of these nodes from their minutes."""
    of = {"hour": hour, "nodes": list(names)}
    connection.execute(TAKE_TURNS, {"hour": hour})
    for statement_ in (CLEAR_GPUS, CLEAR_INSTANCES, CLEAR_NODES, GPUS, INSTANCES, SUMS):
        connection.execute(statement_, of)


def forget(connection: Connection, moment: datetime) -> None:
    """Deletes older rows of tables without partitions."""
    connection.execute(FORGET, {"moment": moment})


def mark_done(connection: Connection, pending: PendingHour) -> None:
    """Marks the hour as rolled up, unless minutes came in meanwhile."""
    connection.execute(DONE, {"hour": pending.hour, "touched_at": pending.touched_at})
