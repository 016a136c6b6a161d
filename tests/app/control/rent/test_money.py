"""What pools have rented is counted and priced: the nodes of now, the hours of a month, the idle minutes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Connection, text

from app.control.rent.money import PoolMoney, read_pools
from app.store.database import clock
from app.store.database.database import Database
from simulation.world import put, read_documents
from tests.simulation.worlds import document, gpu_type, policy

ORDER = """
    INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds, paid_at,
        joined_at, ended_at, idle_seconds, returned)
    SELECT :node, :node, 'burst', 'cloud', :state, :paid, :paid, 60, 600, :paid, :joined, :ended, :idle, false
"""


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
    assert database.read(read_pools) == [PoolMoney("burst", 0, 0, 0.0, 0.0)]


def test_nodes_of_now_are_priced_by_their_purchase_and_hours_count_from_the_moment_on(database: Database) -> None:
    declare_pool(database)

    def fill(connection: Connection) -> None:
        order(connection, "works", "joined", paid=10.0, joined=9.5, idle=1200.0)
        order(connection, "starts", "starting", paid=0.25)
        order(connection, "ended", "gone", paid=4.0, joined=3.5, ended=1.0)
        order(connection, "long-ago", "gone", paid=40.0, joined=39.0, ended=30.0, idle=9e5)

    database.write(fill)
    (now,) = database.read(read_pools)
    assert (now.nodes, now.starting, now.per_hour) == (2, 1, 4.0)
    assert now.wasted_minutes == pytest.approx(30 + 20 + 15, abs=0.5)

    def read_month(connection: Connection) -> list[PoolMoney]:
        return read_pools(connection, clock.moment(connection) - timedelta(hours=5))

    (month,) = database.read(read_month)
    assert month.node_hours == pytest.approx(5 + 0.25 + 3, abs=0.01)
    assert month.cost == pytest.approx(month.node_hours * 2.0)
    assert month.wasted_minutes == pytest.approx(15 + 30, abs=0.5), "when a node idled that is older is not known"
