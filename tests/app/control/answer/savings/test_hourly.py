"""Savings come from the record of the plan in force, once an hour; releases from nodes no longer paid for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.control.answer.savings import hourly
from app.control.domain.leading import Deposed
from app.store.database.database import Database
from app.store.money import savings
from app.store.money.savings import Due
from simulation.run import Simulation, open_simulation
from tests.simulation.worlds import small
from tests.support.postgres import DatabaseServer

HOUR = datetime(2026, 11, 20, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def simulation(postgres: DatabaseServer) -> Iterator[Simulation]:
    """A fleet that has been planned, and then left alone until its second hour has settled."""
    url = postgres.create()
    with open_simulation(url, small()) as found:
        found.advance(40)
        found.clock.seconds += 7200 + 180
        found.planner.lead()
        yield found
    postgres.drop(url)


def rows_of(database: Database, query: str) -> list[tuple[Any, ...]]:
    return database.read(lambda connection: [tuple(row) for row in connection.execute(text(query))])


@pytest.mark.slow
def test_hours_that_are_over_are_held_against_the_baselines_once(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = simulation.planner.store
    monkeypatch.setattr(hourly, "MOST_HOURS", 1)
    hours = hourly.record_savings(store)
    assert hours == 1, "the next turns compare the rest"
    monkeypatch.undo()
    hours += hourly.record_savings(store)
    assert hours in (2, 3)
    assert hourly.record_savings(store) == 0
    rows = rows_of(store.database, "SELECT tenant, plan_nano, one_per_gpu_nano, hetsev_nano, largest_nano FROM saving")
    assert len(rows) == hours
    held = [nano for (nano,) in rows_of(store.database, "SELECT held_nano FROM saving ORDER BY hour")]
    assert held[0] > 0, "the nodes reported usage until they were left alone"
    assert held[1:] == [0] * (hours - 1)
    for tenant, *nanos in rows:
        assert tenant == "shop"
        assert all(nano > 0 and nano % 1_200_000_000 < 10 for nano in nanos), "whole GPUs at 1.2"


def test_another_epochs_savings_are_not_kept(simulation: Simulation) -> None:
    store = simulation.planner.store
    epoch, store.epoch = store.epoch, store.epoch + 1
    try:
        with pytest.raises(Deposed):
            hourly._write(store, Due(HOUR, 1), [])
    finally:
        store.epoch = epoch


OWNED = """
    INSERT INTO gpu_owned (node, gpus, gpu_type, region, purchase, memory_gib, valid_from, valid_to)
    VALUES (:node, :gpus, 'l4', 'eu', :purchase, 24, :begins, :ends)
"""
PRICES = """
    INSERT INTO price (gpu_type, region, purchase, nano_per_hour, valid_from)
    SELECT 'l4', 'eu', purchase, 400000000, '2026-01-01Z' FROM unnest(ARRAY['spot', 'onDemand', 'owned']) AS purchase
"""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url, pool_size=1, direct=True)
    found.write(lambda connection: connection.execute(text(PRICES)))
    yield found
    found.close()


def own(database: Database, node: str, gpus: int, begins: int, ends: int | None, purchase: str = "spot") -> None:
    """Hours before and after HOUR."""
    moments = [None if at is None else HOUR + timedelta(hours=at) for at in (begins, ends)]
    row = {"node": node, "gpus": gpus, "purchase": purchase, "begins": moments[0], "ends": moments[1]}
    database.write(lambda connection: connection.execute(text(OWNED), row))


def released(database: Database) -> list[tuple[Any, ...]]:
    database.write(lambda connection: savings.keep(connection, Due(HOUR, 1), []))
    return rows_of(database, "SELECT gpu_type, purchase, gpus_before, gpus_now, nano FROM release_hour")


def test_a_node_that_was_given_back_saves_its_price(database: Database) -> None:
    own(database, "stays", 4, -500, None)
    own(database, "gone", 2, -500, -3)
    assert released(database) == [("l4", "spot", 6, 4, 800_000_000)]


@pytest.mark.parametrize(
    ("what", "others"),
    [
        ("another node took its place", [("new", 2, -2, None, "spot")]),
        ("it is owned: nothing comes back", [("gone-too", 2, -500, -3, "owned")]),
        ("it was given back more than 30 days ago", [("old", 2, -1500, -800, "spot")]),
    ],
)
def test_nothing_is_realised_where(database: Database, what: str, others: list[tuple[Any, ...]]) -> None:
    own(database, "stays", 4, -2000, None)
    if what == "another node took its place":
        own(database, "gone", 2, -500, -3)
    for node, gpus, begins, ends, purchase in others:
        own(database, node, gpus, begins, ends, purchase)
    assert released(database) == [], what


def test_a_node_that_is_paid_for_in_another_way_was_not_given_back(database: Database) -> None:
    own(database, "same", 2, -500, -3, "onDemand")
    own(database, "same", 2, -3, None, "owned")
    assert released(database) == []
