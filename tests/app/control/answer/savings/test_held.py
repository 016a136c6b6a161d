"""Savings show what services really held in an hour, in figures that anyone can check by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pytest

from agents.contract.reports import UsageInterval
from app.control.answer.savings.hourly import add_held
from app.ledger import accounting
from app.ledger.held import read_held
from app.store.money import savings
from app.store.money.report_queries import ReportQuery, read
from app.store.money.savings import Due, Saving
from tests.app.ledger.town import Ledger, ledger, usage
from tests.support.world import manifest

pytestmark = pytest.mark.slow

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = 60 * MINUTE
PRICE = 6 * 10**9  # of a GPU's hour, in billionths


@pytest.fixture
def town(database_url: str) -> Iterator[Ledger]:
    """Two nodes whose GPUs cost 6.00 an hour each; one o'clock has just passed."""
    with ledger(database_url, NOON) as made:
        made.gpu_type(PRICE / 10**9)
        made.node("node-1")
        made.node("node-2")
        made.passes(HOUR + 3 * MINUTE)
        yield made


@pytest.fixture
def nodes_priced(database_url: str) -> Iterator[Ledger]:
    """A fleet without nodes at noon, where a GPU costs 6.00 an hour and the policy prices nodes."""
    with ledger(database_url, NOON) as made:
        made.gpu_type(PRICE / 10**9)
        made.declare(manifest("Policy", "default", {"pricing": "node"}))
        yield made


def ran(name: str, first: int, last: int, **more: Any) -> UsageInterval:
    """A copy that was there from one minute after noon to another."""
    return usage(name, NOON + first * MINUTE, NOON + last * MINUTE, **more)


def held(town: Ledger) -> dict[str, float]:
    """In hours of a GPU."""
    found = read_held(town.database, NOON, NOON + HOUR)
    assert found is not None
    return {tenant: nano / PRICE for tenant, nano in found.items()}


def test_copies_that_share_a_gpu_hold_it_once(town: Ledger) -> None:
    town.report("node-1", ran("a", 0, 30, sm=20), ran("b", 15, 45, sm=60))
    assert held(town) == {"shop": 45 / 60}


def test_a_hand_over_holds_both_gpus_while_it_lasts(town: Ledger) -> None:
    old, new = ran("old", 0, 40), ran("new", 20, 50)
    town.report("node-1", old)
    town.report("node-2", msgspec.structs.replace(new, instance=old.instance))
    assert held(town) == {"shop": (40 + 30) / 60}


def test_tenants_on_a_gpu_divide_it_by_their_weights_while_both_are_there(town: Ledger) -> None:
    town.report("node-1", ran("a", 0, 60, sm=20), ran("b", 30, 60, sm=60, tenant="lab"))
    assert held(town) == {"shop": 0.5 + 0.5 * 20 / 80, "lab": 0.5 * 60 / 80}


def test_with_pricing_by_share_copies_hold_what_they_use(town: Ledger) -> None:
    town.declare(manifest("Policy", "default", {"pricing": "share"}))
    town.report("node-1", ran("a", 0, 60, sm=20), ran("b", 30, 60, sm=60, tenant="lab"))
    assert held(town) == {"shop": 0.2, "lab": 0.3}


@pytest.mark.parametrize(
    ("purchase", "shop", "lab"),
    [
        # Both GPUs, for a quarter of an hour each: a alone, both by their SM%, b alone, nothing.
        ("onDemand", 0.5 + 0.5 * 20 / 80, 0.5 * 60 / 80 + 0.5),
        ("spot", 0.5 + 0.5 * 20 / 80, 0.5 * 60 / 80 + 0.5),
        # Each the GPU that it runs on.
        ("owned", 0.5, 0.5),
        ("reserved", 0.5, 0.5),
    ],
)
def test_where_the_policy_prices_nodes_any_copy_holds_all_of_a_rented_one(
    nodes_priced: Ledger, purchase: str, shop: float, lab: float
) -> None:
    nodes_priced.node("node-1", gpus=2, purchase=purchase)
    nodes_priced.passes(HOUR + 3 * MINUTE)
    nodes_priced.report("node-1", ran("a", 0, 30, sm=20), ran("b", 15, 45, sm=60, gpu=1, tenant="lab"))
    assert held(nodes_priced) == pytest.approx({"shop": shop, "lab": lab})


def test_a_node_is_held_whole_only_while_it_is_rented(nodes_priced: Ledger) -> None:
    nodes_priced.node("node-1", gpus=2)
    nodes_priced.passes(30 * MINUTE)
    nodes_priced.node("node-1", gpus=2, purchase="owned")
    nodes_priced.passes(33 * MINUTE)
    nodes_priced.report("node-1", ran("a", 0, 60))
    assert held(nodes_priced) == {"shop": 2 * 30 / 60 + 30 / 60}


def test_jobs_hold_nothing_of_it(town: Ledger) -> None:
    job = UsageInterval(
        id="j", instance="i-j", gpu=0, started_at=NOON, ended_at=NOON + HOUR, tenant="lab", job="finetune",
        sm_percent=30.0, memory_gib=2.0, evidence="observed",
    )  # fmt: skip
    town.report("node-1", job, ran("a", 0, 30))
    assert held(town) == {"shop": 0.5}


def test_a_copy_that_was_not_ended_holds_its_gpu_until_its_node_reported_last(town: Ledger) -> None:
    town.now = NOON + 20 * MINUTE
    town.report("node-1", usage("a", NOON))
    town.now = NOON + HOUR + 3 * MINUTE
    town.report("node-2", usage("b", NOON + 30 * MINUTE, tenant="lab"))
    assert held(town) == {"shop": 20 / 60, "lab": 0.5}


def test_of_a_node_with_too_much_usage_it_is_unknown_what_was_held(
    town: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.report("node-1", ran("a", 0, 30), ran("b", 30, 60))
    monkeypatch.setattr(accounting, "MOST_INTERVALS", 1)
    assert read_held(town.database, NOON, NOON + HOUR) is None


def test_days_months_and_tenants_show_what_was_held_beside_the_plan(town: Ledger) -> None:
    """The plan says one GPU of shop for each of two hours, 12.00; handing over it held 10 minutes more, 1.00.

    The plan knows nothing of lab, of which a copy was there for 5 minutes, 0.50.
    """
    town.report("node-1", ran("old", 0, 40))
    town.report("node-2", usage("new", NOON + 30 * MINUTE), ran("gone", 5, 10, tenant="lab"))
    town.passes(HOUR)
    town.report("node-2", ran("new", 30, 120))
    plan = [Saving("shop", PRICE, 2 * PRICE, PRICE, PRICE)]
    for hour in (NOON, NOON + HOUR):
        rows = add_held(plan, read_held(town.database, hour, hour + HOUR))
        town.database.write(partial(savings.keep, due_hour=Due(hour, 1), rows=rows))
    shop, lab = ("hetsev", "shop", 12, 13), ("hetsev", "lab", 0, Decimal("0.5"))
    for grain in ("", "day", "month"):
        assert planned_and_held(town, grain=grain) == [("hetsev", 12, Decimal("13.5"))]
        assert planned_and_held(town, "tenant", grain=grain) == [lab, shop]
    assert planned_and_held(town, grain="hour") == [("hetsev", 6, Decimal("7.5")), ("hetsev", 6, 6)]


def test_what_was_held_is_unknown_where_it_is_of_one_hour(town: Ledger) -> None:
    plan = [Saving("shop", PRICE, PRICE, PRICE, PRICE)]
    for hour, known in ((NOON, {"shop": PRICE}), (NOON + HOUR, None)):
        rows = add_held(plan, known)
        town.database.write(partial(savings.keep, due_hour=Due(hour, 1), rows=rows))
    assert planned_and_held(town, grain="hour") == [("hetsev", 6, 6), ("hetsev", 6, None)]
    for grain in ("", "day", "month"):
        assert planned_and_held(town, grain=grain) == [("hetsev", 12, None)]


def planned_and_held(town: Ledger, *by: str, grain: str = "") -> list[tuple[Any, ...]]:
    """(baseline, what it is by, planned, held) against one of the baselines."""
    query = ReportQuery("savings", by, grain, NOON, NOON + 2 * HOUR)
    rows = town.database.read(lambda connection: read(connection, query))
    names = ("baseline", *by, "cost", "held_cost")
    return [tuple(row[name] for name in names) for row in rows if row["baseline"] == "hetsev"]
