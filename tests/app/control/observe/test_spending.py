"""A tenant's spending is what the ledger booked for it this month."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from app.control.observe.observer import SpendingCache
from app.store.database import clock
from tests.app.ledger.town import Ledger, ledger, usage

APRIL = datetime(2026, 4, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def town(database_url: str) -> Iterator[Ledger]:
    with ledger(database_url, APRIL - 4 * HOUR) as made:
        made.gpu_type(2.0)
        made.node("node-1")
        made.node("node-2")
        yield made


def spent_by_tenant(town: Ledger, spending: SpendingCache) -> dict[str, float]:
    return dict(town.database.read(lambda connection: spending.spent(connection, clock.now(connection))))


@pytest.mark.slow
def test_what_is_booked_counts_from_the_first_of_the_month_and_is_asked_for_now_and_then(town: Ledger) -> None:
    spending = SpendingCache()
    town.report("node-1", usage("a", town.now, sm=50.0))
    town.report("node-2", usage("b", town.now, sm=10.0, tenant="lab", dedicated=True))
    town.now = APRIL - timedelta(seconds=1)
    assert spent_by_tenant(town, spending) == {}
    for node in ("node-1", "node-2"):
        town.report(node)
    town.account()
    assert spent_by_tenant(town, SpendingCache()) == {"lab": 7.5, "shop": 3.75}
    town.now = APRIL + HOUR + timedelta(minutes=3)
    assert spent_by_tenant(town, spending) == {}
    for node in ("node-1", "node-2"):
        town.report(node)
    town.account()
    assert spent_by_tenant(town, spending) == {}, "asked a moment ago"
    town.passes(timedelta(minutes=5))
    assert spent_by_tenant(town, spending) == {"lab": 2.0, "shop": 1.0}
