"""The requests of services in each hour, the answers in time, and the minutes in which too few were."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from agents.contract.fields import LATENCY_EDGES_MS
from app.store.database.database import statement

SERVICES = statement(
    "services_of_hour",
    """
    SELECT DISTINCT tenant, service FROM instance_hour JOIN assigned USING (node, instance, tenant, service)
    WHERE hour = :hour AND node = ANY(CAST(:nodes AS text[])) AND service <> '' ORDER BY tenant, service
    """,
)
# With `tpot_ms` the SLO is of first tokens, which `latency_counts` then time, and of the pace of the others.
# The SLO by which an hour was first judged stays: minutes that come late are judged by the same SLO.
PROMISES = statement(
    "promises_of_hour",
    """
    SELECT wanted.tenant, wanted.service,
           coalesce(known.model, object.spec ->> 'model', '') AS model,
           CASE WHEN known.slo_ms IS NOT NULL THEN known.slo_ms
                ELSE CAST(coalesce(object.spec #>> '{slo,latencyMs}', object.spec #>> '{slo,ttftMs}')
                          AS double precision) END AS slo_ms,
           CASE WHEN known.slo_ms IS NOT NULL THEN known.tpot_ms
                ELSE CAST(object.spec #>> '{slo,tpotMs}' AS double precision) END AS tpot_ms,
           CASE WHEN known.slo_ms IS NOT NULL THEN known.percentile
                ELSE CAST(object.spec #>> '{slo,percentile}' AS double precision) END AS percentile
    FROM unnest(CAST(:tenants AS text[]), CAST(:services AS text[])) AS wanted (tenant, service)
    LEFT JOIN object ON object.kind = 'Service' AND object.tenant = wanted.tenant AND object.name = wanted.service
    LEFT JOIN service_hour AS known
        ON known.hour = :hour AND known.tenant = wanted.tenant AND known.service = wanted.service
    """,
)
# A node's report counts only for what it was assigned: no other node's report can break a service's SLO.
# `edge`: the number of buckets within the SLO; `part`: the share of the next one that counts, as if spread evenly.
ROLL_UP = statement(
    "roll_up_services",
    """
    WITH promise AS MATERIALIZED (
        SELECT * FROM unnest(
            CAST(:tenants AS text[]), CAST(:services AS text[]), CAST(:models AS text[]),
            CAST(:slos AS double precision[]), CAST(:tpots AS double precision[]),
            CAST(:percentiles AS double precision[]), CAST(:edges AS int[]), CAST(:parts AS double precision[])
        ) AS promise (tenant, service, model, slo_ms, tpot_ms, percentile, edge, part)
    ), minute AS (
        SELECT line.tenant, line.service, line.minute, sum(line.requests) AS requests, sum(line.errors) AS errors,
               sum(line.busy_seconds) AS busy_seconds, 60 * count(*) AS instance_seconds,
               sum(line.tokens_in) AS tokens_in, sum(line.tokens_out) AS tokens_out, sum(line.paced) AS paced,
               sum(line.paced - line.pace_late) AS pace_in_time,
               sum(coalesce((SELECT sum(count) FROM unnest(line.latency_counts) AS count), 0)) AS answers,
               sum(coalesce((SELECT sum(count) FROM unnest(line.latency_counts[1 : promise.edge]) AS count), 0)
                   + coalesce(line.latency_counts[promise.edge + 1] * CAST(promise.part AS numeric), 0)) AS in_time
        FROM promise JOIN instance_minute AS line USING (tenant, service)
        WHERE line.minute >= :hour AND line.minute < :until AND EXISTS (
            SELECT FROM assigned AS known WHERE known.node = line.node AND known.instance = line.instance
               AND known.tenant = line.tenant AND known.service = line.service)
        GROUP BY line.tenant, line.service, line.minute
    )
    INSERT INTO service_hour AS known (hour, tenant, service, model, slo_ms, percentile, requests, answers, errors,
        in_time, asked_minutes, violation_minutes, busy_seconds, instance_seconds, tokens, tokens_in, tpot_ms, paced,
        pace_in_time)
    SELECT :hour, tenant, service, max(model), max(slo_ms), max(percentile), sum(requests), sum(answers), sum(errors),
           sum(in_time), count(*) FILTER (WHERE answers + errors > 0),
           count(*) FILTER (WHERE answers + errors > 0 AND (
               100 * in_time < percentile * (answers + errors) OR 100 * pace_in_time < percentile * paced)),
           CAST(sum(busy_seconds) AS numeric), sum(instance_seconds), sum(tokens_out), sum(tokens_in), max(tpot_ms),
           sum(paced), sum(pace_in_time)
    FROM minute JOIN promise USING (tenant, service) GROUP BY tenant, service
    ON CONFLICT (hour, tenant, service) DO UPDATE SET
        model = excluded.model, slo_ms = excluded.slo_ms, percentile = excluded.percentile,
        requests = excluded.requests, answers = excluded.answers, errors = excluded.errors,
        in_time = excluded.in_time, asked_minutes = excluded.asked_minutes,
        violation_minutes = excluded.violation_minutes, busy_seconds = excluded.busy_seconds,
        instance_seconds = excluded.instance_seconds, tokens = excluded.tokens, tokens_in = excluded.tokens_in,
        tpot_ms = excluded.tpot_ms, paced = excluded.paced, pace_in_time = excluded.pace_in_time
    """,
)
FORGET = statement("forget_service_hours", "DELETE FROM service_hour WHERE hour < :moment")


def services(connection: Connection, hour: datetime, nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the services (tenant, name) that these nodes ran in the hour, once it is rolled up."""
    return [(row.tenant, row.service) for row in connection.execute(SERVICES, {"hour": hour, "nodes": list(nodes)})]


def roll_up(connection: Connection, hour: datetime, some: Sequence[tuple[str, str]]) -> None:
    """Rebuilds the hour's rows of these services from the minutes of all their instances."""
    named = {"hour": hour, "tenants": [tenant for tenant, _ in some], "services": [service for _, service in some]}
    promises = connection.execute(PROMISES, named).all()
    limits = [histogram_limit(row.slo_ms) for row in promises]
    connection.execute(
        ROLL_UP,
        {
            "hour": hour,
            "until": hour + timedelta(hours=1),
            "tenants": [row.tenant for row in promises],
            "services": [row.service for row in promises],
            "models": [row.model for row in promises],
            "slos": [row.slo_ms for row in promises],
            "tpots": [row.tpot_ms for row in promises],
            "percentiles": [row.percentile for row in promises],
            "edges": [edge for edge, _ in limits],
            "parts": [part for _, part in limits],
        },
    )


def forget(connection: Connection, moment: datetime) -> int:
    """Deletes older hours."""
    return connection.execute(FORGET, {"moment": moment}).rowcount


def histogram_limit(slo_ms: float | None) -> tuple[int, float]:
    """Returns the number of buckets of a histogram within an SLO, and the share of the next one."""
    if slo_ms is None:
        return 0, 0.0
    edge = bisect_left(LATENCY_EDGES_MS, slo_ms)
    if edge == len(LATENCY_EDGES_MS):
        return edge, 0.0
    below = LATENCY_EDGES_MS[edge - 1] if edge else 0.0
    return edge, (slo_ms - below) / (LATENCY_EDGES_MS[edge] - below)
