"""What pools have rented is counted and priced: the nodes of now; hours, money and idle minutes since a moment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Connection, TextClause, text

from app.control.rent.money import PoolMoney, read_pools
from app.store.database import clock
from app.store.database.database import Database
from app.store.fleet import rented, rented_pools
from simulation.world import put, read_documents
from tests.simulation.worlds import document, gpu_type, policy

ORDER = """
    INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds, paid_at,
        joined_at, ended_at, idle_seconds, returned)
    SELECT :node, :node, 'burst', 'cloud', :state, :paid, :paid, 60, 600, :paid, :joined, :ended, :idle, false
"""
OWNED = """
    INSERT INTO gpu_owned (node, gpus, gpu_type, region, purchase, memory_gib, valid_from, valid_to)
    SELECT :node, 4, 'v100-16gb', 'default', 'spot', 16, :paid, :ended
"""
PRICED = """
    INSERT INTO price (gpu_type, region, purchase, nano_per_hour, valid_from, valid_to)
    SELECT 'v100-16gb', 'default', 'spot', CAST(:price AS numeric) * 1000000000,
        CAST(:now AS timestamptz) - interval '1 hour' * :begun, CAST(:now AS timestamptz) - interval '1 hour' * :ended
"""


def price(connection: Connection, price: float, begun: float, ended: float | None = None) -> None:
    """Records a price that was in force so many hours ago."""
    now = clock.moment(connection)
    connection.execute(text(PRICED), {"price": price, "begun": begun, "ended": ended, "now": now})


def read_hours(connection: Connection, hours: float) -> list[PoolMoney]:
    """Returns the money of so many hours."""
    return read_pools(connection, clock.moment(connection) - timedelta(hours=hours))


def order(
    connection: Connection, node: str, state: str, paid: float, joined: float | None = None,
    ended: float | None = None, idle: float = 0.0,
) -> None:  # fmt: skip
    """Records an order whose moments are so many hours ago."""
    now = clock.moment(connection)
    moments = {
        name: None if hours is None else now - timedelta(hours=hours)
        for name, hours in {"paid": paid, "joined": joined, "ended": ended}.items()
    }
    connection.execute(text(ORDER), {"node": node, "state": state, "idle": idle, **moments})
    connection.execute(text(OWNED), {"node": node, "paid": moments["paid"], "ended": moments["ended"]})


def declare_pool(database: Database) -> None:
    kind = gpu_type(price=2.0)
    kind = kind | {"spec": kind["spec"] | {"prices": [{"purchase": "spot", "perHour": 0.5}]}}
    spec = {
        "gpuType": "v100-16gb", "gpusPerNode": 4, "cpuCores": 24, "memoryGib": 128, "max": 9, "hook": "cloud",
        "purchase": "spot",
    }  # fmt: skip
    put(database, read_documents([kind, policy(), document("Pool", "burst", spec)]))


def test_a_pool_without_an_order_costs_nothing(database: Database) -> None:
    declare_pool(database)
    assert database.read(lambda connection: read_hours(connection, 5)) == [PoolMoney("burst", 0, 0, 0.0)]


def test_nodes_of_now_are_priced_by_their_purchase_and_hours_count_from_the_moment_on(database: Database) -> None:
    declare_pool(database)

    def fill(connection: Connection) -> None:
        price(connection, 0.5, begun=100, ended=0.01)  # the declaration has another from now on
        order(connection, "works", "joined", paid=10.0, joined=9.5, idle=1200.0)
        order(connection, "starts", "starting", paid=0.25)
        order(connection, "ended", "gone", paid=4.0, joined=3.5, ended=1.0)
        order(connection, "long-ago", "gone", paid=40.0, joined=39.0, ended=30.0, idle=9e5)

    database.write(fill)
    (month,) = database.read(lambda connection: read_hours(connection, 5))
    assert (month.nodes, month.starting, month.per_hour) == (2, 1, 4.0)
    assert month.node_hours == pytest.approx(5 + 0.25 + 3, abs=0.01)
    assert month.cost == pytest.approx(month.node_hours * 2.0, abs=0.05)
    assert month.wasted_minutes == pytest.approx(15 + 30, abs=0.5), "when a node idled that is older is not known"


def test_a_deleted_pool_keeps_what_it_has_cost_this_month_at_the_prices_of_then(database: Database) -> None:
    def fill(connection: Connection) -> None:
        price(connection, 0.5, begun=100, ended=2)
        price(connection, 5.0, begun=2)
        order(connection, "ended", "gone", paid=4.0, joined=3.5, ended=1.0)
        order(connection, "long-ago", "gone", paid=40.0, joined=39.0, ended=30.0)

    database.write(fill)
    (month,) = database.read(lambda connection: read_hours(connection, 5))
    assert (month.pool, month.nodes, month.per_hour) == ("burst", 0, None)
    assert month.cost == pytest.approx(4 * (2 * 0.5 + 1 * 5.0), abs=0.01)
    assert database.read(lambda connection: read_hours(connection, 0.5)) == [], "it has no part of a later month"


def test_a_node_that_outlives_its_pool_is_shown(database: Database) -> None:
    database.write(lambda connection: order(connection, "stays", "leaving", paid=0.5))
    (month,) = database.read(lambda connection: read_hours(connection, 5))
    assert (month.pool, month.nodes, month.per_hour, month.cost) == ("burst", 1, None, 0.0), "no price was declared"


def test_orders_of_earlier_months_are_not_read(database: Database) -> None:
    def fill(connection: Connection) -> list[str]:
        connection.execute(text(HISTORY))
        connection.execute(text("ANALYZE rented_node"))
        since = clock.moment(connection) - timedelta(hours=5)
        asked: list[tuple[TextClause, dict[str, object]]]
        asked = [(rented_pools.SINCE, {"since": since}), (rented.ROWS, {"silent": 30.0}), (rented_pools.NOW, {})]
        return [
            line for sql, given in asked for line in connection.execute(text(f"EXPLAIN {sql.text}"), given).scalars()
        ]

    plan = "\n".join(database.write(fill))
    assert "Seq Scan on rented_node" not in plan, plan
    assert "rented_node_ended" in plan and "rented_node_of" in plan


HISTORY = """
    INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds, paid_at,
        ended_at)
    SELECT 'key-' || n, 'burst-' || n % 50, 'burst', 'cloud', 'gone', at, at, 60, 600, at, at + interval '1 hour'
    FROM (SELECT n, moment() - interval '1 hour' * n AS at FROM generate_series(1, 5000) AS n) AS ordered
"""
