"""The statements of reports, assignments and telemetry find their rows by index.

On 100,000 rows of everything in the long form, every day on a fifth of them, where scanning would cost less already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import TextClause, text

from app.store.database import partitions
from app.store.database.database import Database
from app.store.fleet import (
    assignments,
    gpu_holdings,
    gpu_points,
    load_news,
    node_reports,
    node_state,
    planner_reads,
    refusals,
    telemetry,
)
from app.store.money import packed_minutes, rollups
from tests.support.postgres import DatabaseServer
from tests.support.soak import scaled

ROWS = scaled(100_000, 20_000)
DAY = datetime(2026, 3, 2, tzinfo=UTC)
SEED = """
    INSERT INTO object SELECT gen_random_uuid(), 'Service', 'shop', 's-' || n, '{}', '{}', '{}', 1, n, NULL, '{}',
        now(), now() FROM generate_series(1, 100000) AS n;
    INSERT INTO object SELECT gen_random_uuid(), 'Node', '', 'node-' || n, '{}', '{}', '{}', 1, n, NULL, '{}',
        now(), now() FROM generate_series(1, 1000) AS n;
    INSERT INTO reference SELECT uid, 'GpuType', '', 'type-' || resource_version % 300, '' FROM object;
    INSERT INTO node_state SELECT 'node-' || n, 1, now(), now(), '', 'ok', '', 0, 0, 0
        FROM generate_series(1, 100000) AS n;
    INSERT INTO node_inventory SELECT 'node-' || n, 1, now(), '{}' FROM generate_series(1, 100000) AS n;
    INSERT INTO node_detail SELECT 'node-' || n, now(), '{}' FROM generate_series(1, 100000) AS n;
    INSERT INTO refusal SELECT 'node-' || n, 'i', 1, now() FROM generate_series(1, 100000) AS n;
    INSERT INTO assignment SELECT 'node-' || n, 1, 1, n, '{}', now() FROM generate_series(1, 100000) AS n;
    INSERT INTO report_minute SELECT now() + (n % 100) * interval '1 minute', 'node-' || n, 1, now(), ''
        FROM generate_series(1, 100000) AS n;
    INSERT INTO gpu_minute SELECT '2026-03-02T00:00Z'::timestamptz + (n % 1000) * interval '1 minute',
        'node-' || n / 1000, 0, 1, 'ok', 0, 0, 0, 0, 0, 0, 0, '{}' FROM generate_series(1, 100000) AS n;
    INSERT INTO instance_minute SELECT '2026-03-02T00:00Z'::timestamptz + (n % 1000) * interval '1 minute',
        'node-' || n / 1000, 'i', 1, 0, 'shop', 's-' || n / 1000, '', 0, 0, 0, 0, '{}', 0, 0, 0
        FROM generate_series(1, 100000) AS n;
    INSERT INTO gpu_hour SELECT '2026-03-02T00:00Z'::timestamptz + (n % 24) * interval '1 hour',
        'node-' || n / 24, 0, 60, 0, 0, 0, 0, 0, 0 FROM generate_series(1, 100000) AS n;
    INSERT INTO instance_hour SELECT '2026-03-02T00:00Z'::timestamptz + (n % 24) * interval '1 hour',
        'node-' || n / 24, 'i', 60, 0, 'shop', 's', '', 0, 0, 0, 0, '{}', 0, 0, 0
        FROM generate_series(1, 100000) AS n;
    INSERT INTO gpu_hour_minutes SELECT '2026-03-02T00:00Z'::timestamptz + (n % 24) * interval '1 hour',
        'node-' || n / 24, 0, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'
        FROM generate_series(1, 100000) AS n;
    INSERT INTO instance_hour_minutes SELECT '2026-03-02T00:00Z'::timestamptz + (n % 24) * interval '1 hour',
        'node-' || n / 24, 'i', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
        '{}', '{}', '{}', '{}', '{}', '{}' FROM generate_series(1, 100000) AS n;
    INSERT INTO usage_interval (id, node, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib,
        dedicated, started_at, evidence)
        SELECT 'u-' || n, 'node-' || n, 'i', 0, '', '', 's', '', 0, 0, false, now(), ''
        FROM generate_series(1, 100000) AS n;
    INSERT INTO assigned SELECT 'node-' || n, 'i', 0, '', 's', '', 0, 0, false, now()
        FROM generate_series(1, 100000) AS n;
    INSERT INTO usage_truth SELECT 'node-' || n, 'u-' || n, now(), NULL, '' FROM generate_series(1, 100000) AS n;
"""
OF_NODE = {"node": "node-7", "start": DAY, "stop": DAY + timedelta(hours=1), "limit": 1000}
SOME = ["node-1", "node-2"]
STEPS = {"node": "node-7", "since": DAY, "until": DAY + timedelta(hours=1), "step": timedelta(minutes=15)}
HOT: list[tuple[TextClause, dict[str, Any]]] = [
    (gpu_points.MEASURED, STEPS),
    (gpu_points.AILING, STEPS),
    (gpu_holdings.COPIES, {"tenant": "shop", "service": "s-7"}),
    (gpu_holdings.HELD, {"node": "node-7", "since": DAY, "tenant": "", "limit": 100}),
    (assignments.SINCE, {"after": 99_990, "nodes": SOME}),
    (assignments.OF_NODE, {"node": "node-7"}),
    (node_state.ORDINALS, {"nodes": SOME}),
    (node_state.STATE, {"node": "node-7"}),
    (node_state.INVENTORY, {"node": "node-7"}),
    (node_state.DETAIL, {"node": "node-7"}),
    (node_state.DEVICE_CHANGES, {"limit": 25, "only": ""}),
    (node_state.MARK_NOTED, {"nodes": SOME, "inventories": [DAY, DAY], "details": [DAY, None]}),
    (node_state.MARK_FOR_COMPARISON, {"types": ["v100-16gb"]}),
    (refusals.FORGET, {"limit": 100}),
    (node_state.REPORTING_CHANGES, {"since": DAY, "patience": timedelta(seconds=35), "limit": 25}),
    (telemetry.DUE_DAYS, {"finished": telemetry.FINISHED}),
    (telemetry.FINISHED_REPORTS, {"finished": telemetry.FINISHED, "quiet": telemetry.QUIET, "limit": 20}),
    (telemetry.DISCARD, {"minutes": [DAY], "nodes": ["node-1"]}),
    (packed_minutes.OF_NODE, OF_NODE),
    (packed_minutes.INSTANCES_OF_NODE, OF_NODE),
    *((making, {"hour": DAY, "nodes": SOME}) for making in packed_minutes.PACKS),
    (rollups.GPUS, {"hour": DAY, "nodes": SOME}),
    (rollups.INSTANCES, {"hour": DAY, "nodes": SOME}),
    (rollups.CLEAR_GPUS, {"hour": DAY, "nodes": SOME}),
    (rollups.CLEAR_INSTANCES, {"hour": DAY, "nodes": SOME}),
]


@pytest.fixture(scope="module")
def database(postgres: DatabaseServer) -> Iterator[Database]:
    url = postgres.create()
    database = Database(url, pool_size=2, direct=True)
    database.write(lambda connection: partitions.ensure(connection, [DAY]))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SEED.replace("100000", str(ROWS)).encode())
        connection.execute("VACUUM ANALYZE")
    yield database
    database.close()
    postgres.drop(url)


def name_of(statement: TextClause) -> str:
    return str(statement.get_execution_options()["statement"])


@pytest.mark.parametrize(("statement", "parameters"), HOT, ids=[name_of(one) for one, _ in HOT])
def test_rows_are_found_by_index(database: Database, statement: TextClause, parameters: dict[str, Any]) -> None:
    explain = text("EXPLAIN " + statement.text)
    plan = database.read(lambda connection: "\n".join(connection.execute(explain, parameters).scalars()))
    assert "Index" in plan
    assert "Seq Scan" not in plan, plan


SINCE = {"assigned": ROWS - 10, "node": "", "hours": 2.0, "place_minutes": 30.0, "since": datetime.now(UTC)}
NEWS = load_news.NewsQuestion(ROWS - 10, known=[("node-1", 1)])
WHOLE = {"node_state", "node_detail"}  # a step reads of each node when it reported; a planner asks that of all at once
READS: list[tuple[TextClause, dict[str, Any], set[str]]] = [
    (planner_reads.STEP, {**SINCE, **NEWS.values}, WHOLE | {"report_minute"}),
    (planner_reads.CYCLE, SINCE, WHOLE),
    (load_news.READ, NEWS.values, {"report_minute"}),  # which holds the last minutes alone
]  # fmt: skip
SMALL = {
    "approval_hold", "campaign", "cordon", "correction", "gateway_state", "job_state", "lease", "plan",
    "reclaim_notice", "version",
}  # fmt: skip


@pytest.mark.parametrize(("statement", "parameters", "whole"), READS, ids=[name_of(one) for one, _, _ in READS])
def test_a_planner_reads_of_large_tables_what_is_new_and_of_each_node_one_row(
    database: Database, statement: TextClause, parameters: dict[str, Any], whole: set[str]
) -> None:
    explain = text("EXPLAIN " + statement.text)
    plan = database.read(lambda connection: "\n".join(connection.execute(explain, parameters).scalars()))
    assert "Index" in plan
    assert set(re.findall(r"Seq Scan on (\w+)", plan)) <= whole | SMALL, plan


def test_a_batch_of_reports_is_one_statement_that_scans_nothing(database: Database) -> None:
    told = node_reports.ReportedNode("node-1", 5, DAY, "", "ok", "", 0, 0, 0, DAY)
    parameters = {
        "reported": "[]",
        "bodies": b"",
        "inventories": "[]",
        "details": "[]",
        "intervals": "[]",
        "retention": timedelta(days=1),
        "longest_usage": timedelta(days=1),
        "ahead": timedelta(minutes=5),
        "prompt": timedelta(minutes=1),
        "incarnation_ahead": node_reports.INCARNATION_AHEAD,
    }
    explain = text("EXPLAIN " + node_reports.KEEP.text)
    plan = database.read(lambda connection: list(connection.execute(explain, parameters).scalars()))
    scans = [line for line in plan if "Seq Scan" in line]
    assert not [line for line in scans if "on version " not in line], "version has one row for each stream"
    kept = database.repeatable(
        lambda connection: node_reports.keep(
            connection, [told], [b""], [], [], [], timedelta(days=1), timedelta(days=1)
        )
    )
    assert (kept.late, kept.unassigned) == (set(), set())
    assert kept.now.tzinfo is not None


def test_time_ranges_touch_only_their_partitions(database: Database) -> None:
    next_day = DAY + timedelta(days=1)
    database.write(lambda connection: partitions.ensure(connection, [next_day]))
    explain = text("EXPLAIN " + packed_minutes.OF_NODE.text)
    plan = database.read(lambda connection: "\n".join(connection.execute(explain, OF_NODE).scalars()))
    assert "gpu_minute_20260302" in plan
    assert "gpu_minute_20260303" not in plan
