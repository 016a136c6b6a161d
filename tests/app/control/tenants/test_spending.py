"""What a tenant spent is what it used of each node in this month, at the node's price."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from app.control.tenants.spending import Spending
from app.store.database import Database

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
PRICES = {"node-1": 2.0, "node-2": 1.0}


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    database = Database(database_url, pool_size=1, direct=True)
    with database.engine.connect() as connection:
        yield at(connection, NOW)
    database.close()


def at(connection: Connection, moment: datetime) -> Connection:
    connection.execute(text("SELECT set_config('gpuwright.moment', :moment, false)"), {"moment": moment.isoformat()})
    return connection


def used(
    connection: Connection, id_: str, tenant: str, start: datetime, stop: datetime | None, sm_percent: float = 50.0,
    *, node: str = "node-1", dedicated: bool = False,
) -> None:  # fmt: skip
    connection.execute(
        text(
            "INSERT INTO usage_interval (id, node, instance, gpu, gpu_uuid, tenant, service, job, sm_percent,"
            " memory_gib, dedicated, started_at, ended_at, evidence)"
            " VALUES (:id, :node, 'i', 0, '', :tenant, 's', '', :sm, 1, :dedicated, :start, :stop, '')"
        ),
        {
            "id": id_, "node": node, "tenant": tenant, "sm": sm_percent, "dedicated": dedicated, "start": start,
            "stop": stop,
        },
    )  # fmt: skip


def test_open_and_ended_intervals_count_from_the_first_of_the_month(connection: Connection) -> None:
    used(connection, "a", "shop", MARCH - timedelta(days=30), MARCH - timedelta(days=1))
    used(connection, "b", "shop", MARCH - timedelta(hours=5), MARCH + timedelta(hours=3))  # 3 h x 0.5 x 2
    used(connection, "c", "shop", NOW - timedelta(hours=4), None, 100.0)  # 4 h x 1 x 2
    used(connection, "d", "lab", NOW - timedelta(hours=4), None, 10.0, dedicated=True, node="node-2")  # 4 h x 1 x 1
    assert Spending().spent(connection, PRICES) == {"lab": 4.0, "shop": 11.0}


def test_a_node_that_is_gone_counts_at_the_mean_price(connection: Connection) -> None:
    used(connection, "a", "shop", NOW - timedelta(hours=2), None, node="gone")
    assert Spending().spent(connection, PRICES) == {"shop": 1.5}


def test_the_sum_is_asked_for_now_and_then_and_anew_in_a_new_month(connection: Connection) -> None:
    spending = Spending()
    used(connection, "a", "shop", NOW - timedelta(hours=1), None, 100.0)
    assert spending.spent(connection, PRICES) == {"shop": 2.0}
    assert spending.spent(at(connection, NOW + timedelta(minutes=4)), PRICES) == {"shop": 2.0}
    assert spending.spent(at(connection, NOW + timedelta(hours=1)), PRICES) == {"shop": 4.0}
    april = datetime(2026, 4, 1, 0, 3, tzinfo=UTC)
    assert spending.spent(at(connection, april - timedelta(minutes=4)), PRICES)["shop"] > 1000
    assert spending.spent(at(connection, april), PRICES) == {"shop": 0.1}
