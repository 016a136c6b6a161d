"""Tokens and their pace: from the minutes that nodes report to hours, SLOs and costs in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from agents.contract.assignments import AssignedInstance, Assignment
from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.reports import InstanceMinute
from app.nodes.expansion import Expanded
from app.store.database import partitions
from app.store.database.database import Database
from app.store.fleet import service_hours, telemetry

pytestmark = pytest.mark.slow

HOUR = datetime(2026, 3, 2, 10, tzinfo=UTC)
EDGE = 36  # within the promise of first tokens, and no later
TTFT_MS = LATENCY_EDGES_MS[EDGE]
SERVICE = """
    INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation, resource_version, selectable,
        created_at, updated_at)
    VALUES (gen_random_uuid(), 'Service', 'lab', 'chat', '{}', CAST(:spec AS jsonb), '{}', 1, 1, '{}', now(), now())
"""
ASSIGN = """
    INSERT INTO assignment (node, epoch, generation, version, body, written_at)
    VALUES ('n-1', 1, 1, :version, :body, now())
    ON CONFLICT (node) DO UPDATE SET body = excluded.body, version = excluded.version
"""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url, pool_size=1)
    found.write(lambda connection: partitions.ensure(connection, [HOUR]))
    slo = {"ttftMs": TTFT_MS, "tpotMs": 50, "percentile": 90}
    spec = msgspec.json.encode({"model": "llama", "slo": slo}).decode()
    found.write(lambda connection: connection.execute(text(SERVICE), {"spec": spec}))
    yield found
    found.close()


def assign(database: Database, version: int, *instances: AssignedInstance) -> None:
    body = msgspec.json.encode(Assignment("n-1", version, 1, 1, instances=instances)).decode()
    database.write(lambda connection: connection.execute(text(ASSIGN), {"version": version, "body": body}))


def minute(database: Database, number: int, in_time: int, late: int, paced: int, pace_late: int) -> None:
    counts = (0,) * EDGE + (in_time, late)
    line = InstanceMinute(
        "chat-1", 0, "lab", "chat", requests=in_time + late, latency_counts=counts, tokens_in=1000 * paced,
        tokens_out=100 * paced, paced=paced, pace_late=pace_late,
    )  # fmt: skip
    expanded = Expanded(HOUR + timedelta(minutes=number), "n-1", number + 1, (), (line,))
    database.write(lambda connection: telemetry.expand(connection, msgspec.json.encode([expanded]).decode()))


def only_row(database: Database, query: str) -> dict[str, Any]:
    (row,) = database.read(lambda connection: connection.execute(text(query)).mappings().all())
    return dict(row)


CHAT = AssignedInstance("chat-1", 0, "lab", "chat", sm_percent=100, memory_gib=80)


def test_an_hour_has_tokens_and_is_judged_by_first_tokens_and_by_their_pace(database: Database) -> None:
    assign(database, 1, CHAT)
    minute(database, 0, in_time=95, late=5, paced=100, pace_late=5)  # both kept
    minute(database, 1, in_time=80, late=20, paced=100, pace_late=0)  # first tokens too late
    minute(database, 2, in_time=100, late=0, paced=100, pace_late=11)  # too slow
    database.write(partial(service_hours.roll_up, hour=HOUR, some=[("lab", "chat")]))
    hour = only_row(database, "SELECT * FROM service_hour")
    assert (hour["slo_ms"], hour["tpot_ms"], hour["percentile"]) == (TTFT_MS, 50, 90)
    assert (hour["tokens_in"], hour["tokens"], hour["in_time"]) == (300_000, 30_000, 275)
    assert (hour["paced"], hour["pace_in_time"]) == (300, 284)
    assert (hour["asked_minutes"], hour["violation_minutes"]) == (3, 2)
    slo = only_row(database, "SELECT * FROM report.slo")
    assert (slo["tpot_ms"], slo["pace_attainment"], slo["is_attained"]) == (50, Decimal("0.946667"), True)


def test_an_slo_is_missed_by_the_pace_alone(database: Database) -> None:
    assign(database, 1, CHAT)
    minute(database, 0, in_time=100, late=0, paced=100, pace_late=11)
    database.write(partial(service_hours.roll_up, hour=HOUR, some=[("lab", "chat")]))
    slo = only_row(database, "SELECT * FROM report.slo_daily")
    assert (slo["attainment"], slo["pace_attainment"], slo["is_attained"]) == (1, Decimal("0.89"), False)


def test_tokens_have_a_price_in_sql(database: Database) -> None:
    assign(database, 1, CHAT)
    minute(database, 0, in_time=100, late=0, paced=100, pace_late=0)
    database.write(partial(service_hours.roll_up, hour=HOUR, some=[("lab", "chat")]))
    cost = only_row(database, "SELECT * FROM report.cost_per_request")
    assert (cost["tokens"], cost["tokens_in"]) == (10_000, 100_000)
    assert cost["cost_per_million_tokens"] == 0  # nothing of it was paid for here


def test_each_gpu_of_an_instance_is_assigned_and_withdrawn(database: Database) -> None:
    query = "SELECT array_agg(gpu ORDER BY gpu) AS gpus FROM assigned WHERE withdrawn_at IS NULL"
    assign(database, 1, msgspec.structs.replace(CHAT, gpus=(0, 2)))
    assert only_row(database, query)["gpus"] == [0, 2]
    assign(database, 2, msgspec.structs.replace(CHAT, gpus=(0, 1)))
    assert only_row(database, query)["gpus"] == [0, 1]
    assign(database, 3)
    assert only_row(database, query)["gpus"] is None
