"""Charts of GPUs read means over steps, also of packed hours, reasons of ailing, and holders as the ledger does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from app.store.database import partitions
from app.store.database.database import Database
from app.store.fleet import gpu_holdings, gpu_points
from app.store.fleet.gpu_holdings import GpuTenure, ServedPlace
from app.store.fleet.gpu_points import AilingPoint, GpuPoint
from app.store.money import packed_minutes

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
QUARTER, HOUR = timedelta(minutes=15), timedelta(hours=1)
MINUTES = """
    INSERT INTO gpu_minute
    SELECT '2026-03-02T12:00Z'::timestamptz + n * interval '1 minute', 'n-1', 0, 1,
           CASE WHEN n = 3 THEN 'failed' ELSE 'ok' END, 10 * n, n, 100, 120, 0, 40 + n, 1000 + n,
           CASE WHEN n >= 15 THEN ARRAY['hw_thermal', 'power_cap'] ELSE '{}' END,
           CASE WHEN n = 3 THEN 'xid_79' ELSE '' END, n = 4
    FROM generate_series(0, 16) AS n
"""
HELD = """
    INSERT INTO node_state SELECT 'n-1', 1, '2026-03-02T13:00Z', now(), '', 'ok', '', 0, 0, 0;
    INSERT INTO assigned VALUES
        ('n-1', 'i-1', 0, 'shop', 's', '', 40, 4, false, '2026-03-02Z'),
        ('n-1', 'i-2', 0, 'lab', '', 'train', 30, 4, true, '2026-03-02Z');
    INSERT INTO usage_interval (node, id, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib,
        dedicated, started_at, ended_at, evidence) VALUES
        ('n-1', 'a', 'i-1', 0, '', 'x', 'y', '', 90, 4, true, '2026-03-02T11:00Z', '2026-03-02T12:10Z', 'measured'),
        ('n-1', 'b', 'i-2', 0, '', 'x', 'y', '', 30, 4, true, '2026-03-02T12:30Z', NULL, 'measured'),
        ('n-1', 'c', 'i-3', 0, '', 'x', 'y', '', 30, 4, false, '2026-03-02T12:30Z', NULL, 'measured'),
        ('n-1', 'd', 'i-1', 0, '', 'x', 'y', '', 40, 4, false, '2026-03-02T10:00Z', '2026-03-02T11:30Z', 'measured'),
        ('n-2', 'e', 'i-1', 0, '', 'x', 'y', '', 40, 4, false, '2026-03-02T12:30Z', NULL, 'measured')
"""

RUNS = """
    INSERT INTO usage_interval (node, id, instance, gpu, gpu_uuid, tenant, service, job, sm_percent, memory_gib,
        dedicated, started_at, evidence)
    VALUES ('n-1', 'f', 'i-1', 0, '', 'x', 'y', '', 40, 4, false, '2026-03-02T12:00Z', 'measured')
"""


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    database = Database(database_url, pool_size=1, direct=True)
    with database.engine.connect() as connection:
        partitions.ensure(connection, [NOON])
        yield connection
    database.close()


@pytest.mark.parametrize("is_packed", [False, True])
def test_steps_have_means_and_the_highest_temperature_and_reasons_are_counted(
    connection: Connection, is_packed: bool
) -> None:
    connection.execute(text(MINUTES))
    if is_packed:
        packed_minutes.pack(connection, NOON, ["n-1"])
        connection.execute(text("DELETE FROM gpu_minute"))
    found = gpu_points.read_gpu_points(connection, "n-1", NOON, NOON + HOUR, QUARTER)
    assert [replace(point, busy=round(point.busy, 9)) for point in found] == [
        GpuPoint(NOON, 0, 0.7, 7, 100, 54, 1007), GpuPoint(NOON + QUARTER, 0, 1.55, 15.5, 100, 56, 1015.5),
    ]  # fmt: skip
    ailing = gpu_points.read_ailing_points(connection, "n-1", NOON, NOON + HOUR, QUARTER)
    assert ailing == [
        AilingPoint(NOON, "fenced", 1), AilingPoint(NOON, "xid_79", 1),
        AilingPoint(NOON + QUARTER, "hw_thermal", 2), AilingPoint(NOON + QUARTER, "power_cap", 2),
    ]  # fmt: skip
    assert gpu_points.read_gpu_points(connection, "n-2", NOON, NOON + HOUR, QUARTER) == []


def test_who_held_a_gpu_is_what_was_assigned_at_most_and_up_to_the_last_report(connection: Connection) -> None:
    for sql in HELD.split(";"):
        connection.execute(text(sql))
    shop = GpuTenure(0, "shop", "s", "", 40, NOON, NOON + timedelta(minutes=10))
    lab = GpuTenure(0, "lab", "", "train", 100, NOON + timedelta(minutes=30), NOON + HOUR)
    assert gpu_holdings.read_tenures(connection, "n-1", NOON, "", 10) == [lab, shop]
    assert gpu_holdings.read_tenures(connection, "n-1", NOON, "shop", 10) == [shop]
    assert gpu_holdings.read_tenures(connection, "n-1", NOON, "", 1) == [lab], "the newest"


def test_copies_of_a_service_are_where_nodes_report_them_by_what_was_assigned(connection: Connection) -> None:
    for sql in HELD.split(";"):
        connection.execute(text(sql))
    assert gpu_holdings.read_copy_places(connection, "shop", "s") == []
    connection.execute(text(RUNS))
    assert gpu_holdings.read_copy_places(connection, "shop", "s") == [ServedPlace("n-1", 0, NOON)]
    assert gpu_holdings.read_copy_places(connection, "x", "y") == [], "as a node says that has no such assignment"
