"""What GPUs cost while they hold copies: the price of each GPU for the union of its copies' times, from the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from agents.contract.reports import UsageInterval
from app.store.money.report_queries import ReportQuery, read
from tests.app.ledger.town import Ledger, ledger, usage
from tests.support.world import manifest

pytestmark = pytest.mark.slow

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = 60 * MINUTE


@pytest.fixture
def town(database_url: str) -> Iterator[Ledger]:
    """Two nodes whose GPUs cost 6.00 an hour each; it is noon."""
    with ledger(database_url, NOON) as made:
        made.gpu_type(6.0)
        made.node("node-1")
        made.node("node-2")
        yield made


def hour_of(town: Ledger, first: Sequence[UsageInterval], second: Sequence[UsageInterval] = ()) -> None:
    """At one o'clock the two nodes report what ran since noon, and it is accounted for."""
    town.now = NOON + HOUR
    town.report("node-1", *first)
    town.report("node-2", *second)
    town.passes(3 * MINUTE)
    town.account(2)


def held(town: Ledger, *by: str, grain: str = "", tenant: str = "") -> list[tuple[Any, ...]]:
    """(what it is by, cost, held cost) of the hour from noon on."""
    query = ReportQuery("cost", by, grain, NOON, NOON + HOUR, tenant)
    rows = town.database.read(lambda connection: read(connection, query))
    return [(*(row[name] for name in by), row["cost"], row["held_cost"]) for row in rows]


def test_two_copies_on_a_gpu_hold_it_once(town: Ledger) -> None:
    """From 12:00 to 12:30 and from 12:20 to 12:50: 50 minutes of one GPU cost 5.00; added up they were 60."""
    first = usage("a", NOON, NOON + 30 * MINUTE, sm=20)
    hour_of(town, [first, usage("b", NOON + 20 * MINUTE, NOON + 50 * MINUTE, sm=30, tenant="lab")])
    assert held(town, "node") == [("node-1", 6, 5), ("node-2", 6, 0)]
    for grain in ("", "hour", "day", "month"):
        assert held(town, grain=grain) == [(12, 5)]


def test_both_gpus_of_a_hand_over_are_held_while_it_lasts(town: Ledger) -> None:
    """The old copy until 12:40, the new one from 12:20 to 12:50: 40 and 30 minutes, 20 of them at the same time."""
    old = usage("old", NOON, NOON + 40 * MINUTE)
    hour_of(town, [old], [usage("new", NOON + 20 * MINUTE, NOON + 50 * MINUTE)])
    assert held(town, "node") == [("node-1", 6, 4), ("node-2", 6, 3)]
    for grain in ("", "hour", "day", "month"):
        assert held(town, grain=grain) == [(12, 7)]


def test_a_tenant_holds_its_part_and_the_rest_of_its_gpus_is_idle(town: Ledger) -> None:
    """Half of a GPU for 40 minutes, 2.00, and a fifth of another for an hour, 1.20; together they held 4.00 + 6.00."""
    half = usage("a", NOON, NOON + 40 * MINUTE, sm=50)
    hour_of(town, [half], [usage("b", NOON, NOON + HOUR, sm=20, tenant="lab")])
    lab, shop = Decimal("1.2"), Decimal(2)
    assert sorted(held(town, "tenant")) == [
        ("__idle__", 10 - lab - shop, 10 - lab - shop), ("__unallocated__", 2, 0), ("lab", lab, lab),
        ("shop", shop, shop),
    ]  # fmt: skip
    assert held(town, "tenant", grain="day", tenant="lab") == [("lab", lab, lab)]


def test_a_late_report_corrects_what_was_held(town: Ledger) -> None:
    hour_of(town, [usage("a", NOON)])
    assert held(town) == [(12, 6)]
    town.report("node-1", usage("a", NOON, NOON + 10 * MINUTE))
    town.account(2)
    assert held(town) == [(12, 1)]


@pytest.mark.parametrize(("purchase", "pricing", "wanted"), [
    ("onDemand", "node", 9), ("spot", "node", 9), ("owned", "node", 4), ("reserved", "node", 4), ("onDemand", "gpu", 4),
])  # fmt: skip
def test_all_of_a_rented_node_is_held_while_anything_is_on_it(
    town: Ledger, purchase: str, pricing: str, wanted: int
) -> None:
    """Three GPUs at 6.00: copies on the first from 12:00 to 12:20, and on the second from 12:10 to 12:30."""
    town.declare(manifest("Policy", "default", {"pricing": pricing}))
    town.node("rented", gpus=3, purchase=purchase)
    town.now = NOON + HOUR
    town.report("rented", usage("a", NOON, NOON + 20 * MINUTE), usage("b", NOON + 10 * MINUTE, NOON + HOUR / 2, gpu=1))
    town.passes(3 * MINUTE)
    town.account(3)
    assert {row[0]: row[1:] for row in held(town, "node")}["rented"] == (18, wanted)
    assert {row[0]: row[1] for row in held(town, "tenant")}["shop"] == 2, "a tenant pays for what it uses"
