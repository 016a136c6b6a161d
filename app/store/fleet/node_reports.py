"""Stores a batch of node reports in one statement in autocommit mode; doing it twice equals doing it once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement

K = TypeVar("K")

AHEAD = timedelta(minutes=5)  # how far an agent's clock may run ahead of the database's
# Agents number their starts by their clocks. Where a number from further ahead is stored, it counts for nothing.
INCARNATION_AHEAD = timedelta(days=1)
# Usage reported within a minute is stored before its slice is accounted for, however long this commit takes; the ledger
# is notified of later usage.
PROMPT = timedelta(minutes=1)


class ReportedNode(msgspec.Struct):
    """One report of a node, and the place of its compressed text in the bytes sent along."""

    node: str
    ordinal: int
    at: datetime
    boot_id: str
    health: str
    message: str
    epoch: int
    generation: int
    assignment_version: int
    minute: datetime
    newest_of_node: bool = True
    newest_of_minute: bool = True
    start: int = 0
    length: int = 0


class ReportedInventory(msgspec.Struct):
    """A machine's inventory, as JSON."""

    node: str
    ordinal: int
    inventory: msgspec.Raw


class ReportedDetail(msgspec.Struct):
    """Copies, devices and refusals in the newest report of a node; `detail` is JSON."""

    node: str
    ordinal: int
    detail: msgspec.Raw


class Interval(msgspec.Struct):
    """Usage that began or ended: the holder, its share of a GPU, and the time."""

    id: str
    node: str
    instance: str
    gpu: int
    gpu_uuid: str
    tenant: str
    service: str
    job: str
    sm_percent: float
    memory_gib: float
    dedicated: bool
    started_at: datetime
    ended_at: datetime | None
    evidence: str
    model: str


class KeptReports(NamedTuple):
    """The result of storing a batch."""

    now: datetime  # the database's time
    late: set[str]  # nodes whose state was not stored because it was no newer
    unassigned: set[tuple[str, str]]  # usage (node, id) that matches no assignment of its node
    endpoints: int  # the version of the endpoints that has all copies of the batch


# Few round trips and few parameters: the rest of a report's cost is paid in the event loop's thread.
# `held` waits for a transaction that is ending usage by rule right now, and reads its result: at this statement's start
# the usage was open, and the agent's report would become neither its end nor a truth that corrects it.
KEEP = statement(
    "keep_reports",
    """
    WITH highest AS MATERIALIZED (
        SELECT (CAST(extract(epoch FROM (SELECT moment()) + CAST(:incarnation_ahead AS interval)) AS bigint) + 2) << 31
               AS ordinal
    ), reported AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(CAST(:reported AS jsonb)) AS reported (
            node text, ordinal bigint, at timestamptz, boot_id text, health text, message text, epoch bigint,
            generation bigint, assignment_version bigint, minute timestamptz, newest_of_node boolean,
            newest_of_minute boolean, start int, length int)
    ), state AS (
        INSERT INTO node_state AS known (node, ordinal, received_at, at, boot_id, health, message, epoch,
                                         generation, assignment_version)
        SELECT node, ordinal, (SELECT moment()), at, boot_id, health, message, epoch, generation,
               assignment_version
        FROM reported WHERE newest_of_node
        ON CONFLICT (node) DO UPDATE SET
            ordinal = excluded.ordinal, received_at = excluded.received_at, at = excluded.at,
            boot_id = excluded.boot_id, health = excluded.health, message = excluded.message,
            epoch = excluded.epoch, generation = excluded.generation,
            assignment_version = excluded.assignment_version
        WHERE known.ordinal < excluded.ordinal OR known.ordinal >= (SELECT ordinal FROM highest)
        RETURNING node
    ), minutes AS (
        INSERT INTO report_minute AS known (minute, node, ordinal, received_at, body)
        SELECT minute, node, ordinal, (SELECT moment()), substring(CAST(:bodies AS bytea), start, length)
        FROM reported
        WHERE newest_of_minute AND length > 0
          AND minute BETWEEN (SELECT moment()) - CAST(:retention AS interval)
                         AND (SELECT moment()) + CAST(:ahead AS interval)
        ON CONFLICT (minute, node) DO UPDATE SET
            ordinal = excluded.ordinal, received_at = excluded.received_at, body = excluded.body
        WHERE known.ordinal < excluded.ordinal OR known.ordinal >= (SELECT ordinal FROM highest)
    ), inventories AS (
        INSERT INTO node_inventory AS known (node, ordinal, changed_at, inventory)
        SELECT DISTINCT ON (node) node, ordinal, (SELECT moment()), inventory
        FROM jsonb_to_recordset(CAST(:inventories AS jsonb)) AS reported (
            node text, ordinal bigint, inventory jsonb)
        ORDER BY node, ordinal DESC
        ON CONFLICT (node) DO UPDATE SET
            ordinal = excluded.ordinal, changed_at = excluded.changed_at, inventory = excluded.inventory,
            noted = false
        WHERE (known.ordinal < excluded.ordinal OR known.ordinal >= (SELECT ordinal FROM highest))
              AND known.inventory IS DISTINCT FROM excluded.inventory
    ), details AS (
        INSERT INTO node_detail AS known (node, changed_at, detail)
        SELECT DISTINCT ON (node) node, (SELECT moment()), detail
        FROM jsonb_to_recordset(CAST(:details AS jsonb)) AS detailed (node text, ordinal bigint, detail jsonb)
        JOIN reported USING (node, ordinal) JOIN state USING (node)
        WHERE newest_of_node
        ON CONFLICT (node) DO UPDATE SET
            changed_at = excluded.changed_at, detail = excluded.detail,
            requested_at = CASE WHEN known.detail ? 'repartition' THEN known.requested_at || (
                SELECT jsonb_object_agg(gpu, jsonb_build_object('at', last.at, 'seconds',
                    greatest(extract(epoch FROM last.at - known.changed_at), 0) + CASE
                    WHEN CAST(known.requested_at -> gpu ->> 'at' AS timestamptz) > known.changed_at - interval '1 hour'
                    THEN CAST(known.requested_at -> gpu ->> 'seconds' AS float8) ELSE 0 END))
                FROM jsonb_array_elements_text(known.detail -> 'repartition') AS gpu,
                     (SELECT coalesce(min(received_at), (SELECT moment())) AS at  -- of the report before this one
                      FROM node_state WHERE node_state.node = known.node) AS last)
                ELSE known.requested_at END,
            noted = known.noted AND known.detail -> 'gpus' IS NOT DISTINCT FROM excluded.detail -> 'gpus'
        WHERE known.detail IS DISTINCT FROM excluded.detail
        RETURNING node
    ), usage AS MATERIALIZED (
        SELECT DISTINCT ON (node, id) id, node, instance, gpu, gpu_uuid, tenant, service, job, model, sm_percent,
               memory_gib, dedicated,
               greatest(started_at, (SELECT moment()) - CAST(:longest_usage AS interval)) AS started_at, ended_at,
               evidence
        FROM jsonb_to_recordset(CAST(:intervals AS jsonb)) AS reported (
            id text, node text, instance text, gpu smallint, gpu_uuid text, tenant text, service text, job text,
            model text, sm_percent double precision, memory_gib double precision, dedicated boolean,
            started_at timestamptz, ended_at timestamptz, evidence text)
        WHERE coalesce(ended_at, started_at)
              BETWEEN (SELECT moment()) - CAST(:longest_usage AS interval)
                  AND (SELECT moment()) + CAST(:ahead AS interval)
        ORDER BY node, id, ended_at NULLS LAST
    ), intervals AS (
        INSERT INTO usage_interval AS known (
            id, node, instance, gpu, gpu_uuid, tenant, service, job, model, sm_percent, memory_gib, dedicated,
            started_at, ended_at, opened_at, closed_at, evidence)
        SELECT id, node, instance, gpu, gpu_uuid, tenant, service, job, model, sm_percent, memory_gib, dedicated,
               started_at, ended_at, (SELECT moment()), CASE WHEN ended_at IS NOT NULL THEN (SELECT moment()) END,
               CASE evidence WHEN 'gap' THEN '' ELSE evidence END
        FROM usage
        ON CONFLICT (node, id) DO UPDATE SET
            ended_at = excluded.ended_at, closed_at = excluded.closed_at, evidence = excluded.evidence
        WHERE known.ended_at IS NULL AND excluded.ended_at >= known.started_at
        RETURNING node, CASE WHEN xmax = 0 THEN started_at ELSE ended_at END AS since
    ), held AS MATERIALIZED (
        SELECT node, id, known.started_at, known.ended_at, known.evidence
        FROM usage JOIN usage_interval AS known USING (node, id)
        ORDER BY node, id FOR NO KEY UPDATE OF known
    ), truths AS (
        INSERT INTO usage_truth (node, id, told_at, ended_at, evidence)
        SELECT node, id, (SELECT moment()), usage.ended_at, usage.evidence
        FROM usage JOIN held AS known USING (node, id)
        WHERE known.evidence = 'gap' AND known.ended_at IS NOT NULL AND usage.ended_at >= known.started_at
          AND NOT EXISTS (SELECT FROM usage_truth AS truth
                          WHERE truth.node = known.node AND truth.id = known.id AND truth.ended_at IS NOT NULL)
        RETURNING node, id, ended_at
    ), news AS (
        INSERT INTO usage_news (node, since)
        SELECT node, min(since) FROM (
            SELECT node, since FROM intervals WHERE since < (SELECT moment()) - CAST(:prompt AS interval)
            UNION ALL
            SELECT node, least(known.ended_at, truths.ended_at)
            FROM truths JOIN usage_interval AS known USING (node, id)) AS late
        GROUP BY node
    )
    SELECT moment() AS now, (SELECT array_agg(node) FROM state) AS stored,
           (SELECT array_agg(ARRAY[node, usage.id]) FROM usage LEFT JOIN assigned USING (node, instance, gpu)
            WHERE (usage.tenant, usage.service, usage.job)
                  IS DISTINCT FROM (assigned.tenant, assigned.service, assigned.job)) AS strange,
           CASE WHEN (SELECT count(*) FROM details) > 0 THEN advance_endpoint()
                ELSE (SELECT value FROM version WHERE name = 'endpoint') END AS endpoints
    """,
)


def keep(
    connection: Connection,
    batch: Sequence[ReportedNode],
    bodies: Sequence[bytes],
    inventories: Sequence[ReportedInventory],
    details: Sequence[ReportedDetail],
    intervals: Sequence[Interval],
    retention: timedelta,
    longest_usage: timedelta,
) -> KeptReports:
    """Stores the newest state of each node, and the newest report of each node and minute.

    Skips empty bodies, and those of a minute too far ahead or longer ago than `retention`. An interval is opened once
    and closed once.
    """
    newest: dict[str, ReportedNode] = {}
    of_minute: dict[tuple[str, datetime], ReportedNode] = {}
    start = 1
    for report, body in zip(batch, bodies, strict=True):
        report.start, report.length = start, len(body)
        start += len(body)
        _keep_newest(newest, report.node, report)
        if body:
            _keep_newest(of_minute, (report.node, report.minute), report)
    for report in batch:
        report.newest_of_node = newest[report.node] is report
        report.newest_of_minute = of_minute.get((report.node, report.minute)) is report
    rows = sorted(batch, key=attrgetter("node", "minute"))  # the same order for all writers, so that none deadlock
    now, stored, strange, version = connection.execute(
        KEEP,
        {
            "reported": msgspec.json.encode(rows).decode(),
            "bodies": b"".join(bodies),
            "inventories": msgspec.json.encode(inventories).decode(),
            "details": msgspec.json.encode(details).decode(),
            "intervals": msgspec.json.encode(intervals).decode(),
            "retention": retention,
            "longest_usage": longest_usage,
            "ahead": AHEAD,
            "incarnation_ahead": INCARNATION_AHEAD,
            "prompt": PROMPT,
        },
    ).one()
    unassigned = {(node, name) for node, name in strange or ()}
    return KeptReports(now, newest.keys() - set(stored or ()), unassigned, version or 0)


def _keep_newest(newest: dict[K, ReportedNode], key: K, report: ReportedNode) -> None:
    other = newest.get(key)
    if other is None or other.ordinal < report.ordinal:
        newest[key] = report
