"""Hours of services from the minutes of their instances: attainment, minutes in violation, and the SLO that stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agents.contract.fields import LATENCY_EDGES_MS
from app.store.database import partitions
from app.store.database.database import Database
from app.store.fleet import service_hours
from tests.support.postgres import GivenDatabase

HOUR = datetime(2026, 11, 20, 10, tzinfo=UTC)
EDGE = 27  # its upper edge is the SLO: 27 buckets lie within it
SLO_MS = LATENCY_EDGES_MS[EDGE - 1]
MINUTE = """
    INSERT INTO instance_minute (minute, node, instance, ordinal, gpu, tenant, service, job, sm_percent, memory_gib,
        requests, errors, latency_counts, batch_mean, queue_mean, busy_seconds)
    VALUES (:minute, :node, :node, 1, 0, 'shop', 'search', '', 50, 2, :requests, :errors, :counts, 1, 0, 15)
"""
ASSIGNED = """
    INSERT INTO assigned (node, instance, gpu, tenant, service, job, sm_percent, memory_gib, dedicated, first_at)
    VALUES (:node, :node, 0, 'shop', 'search', '', 50, 2, false, now()) ON CONFLICT DO NOTHING
"""
SERVICE = """
    INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation, resource_version, selectable,
        created_at, updated_at)
    VALUES (gen_random_uuid(), 'Service', 'shop', 'search', '{}', CAST(:spec AS jsonb), '{}', 1, 1, '{}', now(), now())
    ON CONFLICT (kind, tenant, name) DO UPDATE SET spec = excluded.spec
"""


def declare(database: Database, latency_ms: float, percentile: float = 90) -> None:
    spec = f'{{"model": "resnet50", "slo": {{"latencyMs": {latency_ms}, "percentile": {percentile}}}}}'
    database.write(lambda connection: connection.execute(text(SERVICE), {"spec": spec}))


def minute(
    database: Database, number: int, node: str, in_time: int, late: int, errors: int = 0, *, assigned: bool = True
) -> None:
    counts = [0] * (EDGE - 1) + [in_time, 0, late]
    row = {"minute": HOUR + timedelta(minutes=number), "node": node, "counts": counts, "errors": errors}

    def write(connection: Connection) -> None:
        if assigned:
            connection.execute(text(ASSIGNED), {"node": node})
        connection.execute(text(MINUTE), row | {"requests": in_time + late + errors})

    database.write(write)


def rolled_up(database: Database) -> dict[str, Any]:
    database.write(partial(service_hours.roll_up, hour=HOUR, some=[("shop", "search")]))
    rows = database.read(lambda connection: connection.execute(text("SELECT * FROM service_hour")).mappings().all())
    (row,) = rows
    return dict(row)


@pytest.fixture
def database(each_database: GivenDatabase) -> Any:
    found = Database(each_database.url, pool_size=1, direct=each_database.direct)
    found.write(lambda connection: partitions.ensure(connection, [HOUR]))
    declare(found, SLO_MS)
    yield found
    found.close()


@pytest.mark.slow
def test_a_minute_counts_by_all_instances_together(database: Database) -> None:
    minute(database, 0, "n-1", in_time=80, late=20)  # 80 % here, 95 % with the other
    minute(database, 0, "n-2", in_time=300, late=0)
    minute(database, 1, "n-1", in_time=50, late=50)  # 50 %
    minute(database, 2, "n-1", in_time=90, late=0, errors=10)  # just 90 %: kept
    minute(database, 3, "n-1", in_time=0, late=0)  # nothing was asked
    row = rolled_up(database)
    assert (row["asked_minutes"], row["violation_minutes"]) == (3, 1)
    assert (row["requests"], row["answers"], row["errors"]) == (600, 590, 10)
    assert row["in_time"] == 80 + 300 + 50 + 90
    assert (row["busy_seconds"], row["instance_seconds"]) == (75, 300)
    assert (row["model"], row["slo_ms"], row["percentile"]) == ("resnet50", SLO_MS, 90)


def test_inside_a_bucket_latencies_count_as_spread_evenly(database: Database) -> None:
    below = LATENCY_EDGES_MS[EDGE - 2]
    declare(database, below + (SLO_MS - below) / 4)
    minute(database, 0, "n-1", in_time=100, late=0)
    assert float(rolled_up(database)["in_time"]) == pytest.approx(25)


@pytest.mark.slow
def test_what_comes_late_is_judged_by_the_slo_that_the_hour_was_judged_by(database: Database) -> None:
    minute(database, 0, "n-1", in_time=100, late=0)
    rolled_up(database)
    declare(database, 1.0, 99)
    minute(database, 1, "n-1", in_time=100, late=0)
    row = rolled_up(database)
    assert (row["slo_ms"], row["in_time"], row["violation_minutes"]) == (SLO_MS, 200, 0)


@pytest.mark.slow
def test_of_a_service_that_is_gone_requests_are_kept_and_no_promise(database: Database) -> None:
    minute(database, 0, "n-1", in_time=100, late=0)
    database.write(lambda connection: connection.execute(text("DELETE FROM object")))
    row = rolled_up(database)
    assert (row["requests"], row["slo_ms"], row["violation_minutes"]) == (100, None, 0)
    slo = database.read(lambda connection: connection.execute(text("SELECT count(*) FROM report.slo")).scalar_one())
    assert slo == 0


def test_a_node_says_nothing_of_a_service_that_it_was_never_assigned(database: Database) -> None:
    minute(database, 0, "a", in_time=99, late=1)
    minute(database, 0, "evil", in_time=0, late=0, errors=1_000_000, assigned=False)
    row = rolled_up(database)
    assert (row["requests"], row["errors"], row["violation_minutes"]) == (100, 0, 0)
