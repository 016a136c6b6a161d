"""What a node says that it ran is held against what it was assigned: a lie bills nobody, the truth is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.app.ledger.town import Ledger, ledger, usage

pytestmark = pytest.mark.slow

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
QUARTER = 15 * MINUTE
HOUR = 4 * QUARTER
DAY = 24 * HOUR

PAID = """
    SELECT CASE kind WHEN 'used' THEN tenant || '/' || service ELSE kind END, CAST(sum(nano) AS bigint)
    FROM allocation GROUP BY 1 HAVING sum(nano) <> 0
"""
MONEY = 4_000_000_000  # an hour of the GPU


@pytest.fixture
def town(database_url: str) -> Iterator[Ledger]:
    with ledger(database_url, NOON) as made:
        made.gpu_type(4.0)
        made.node("node-1")
        made.node("node-2")
        yield made


def paid(town: Ledger, after: timedelta, node: str = "node-1") -> dict[str, int]:
    """Who paid for the node's GPU from noon on, once that long has passed and was accounted for."""
    town.now = NOON + after
    town.claim(node)
    town.passes(3 * MINUTE)
    town.account(9)
    return dict(map(tuple, town.rows(PAID.replace("GROUP", "WHERE node = :node GROUP"), node=node)))


def test_usage_that_was_never_assigned_bills_nobody(town: Ledger) -> None:
    (dropped,) = town.claim("node-1", usage("a", NOON, tenant="victim"))
    assert (dropped.what, dropped.reason) == ("usage a", "not_assigned")
    assert "i-a on GPU 0 was never assigned to this node for victim/search" in dropped.message
    assert paid(town, HOUR) == {"unallocated": MONEY}
    assert town.rows("SELECT tenant FROM usage_interval") == [("victim",)], "what it said stands"


def test_a_node_cannot_bill_for_what_another_was_assigned(town: Ledger) -> None:
    town.assign("node-2", usage("a", NOON))
    assert [one.reason for one in town.claim("node-1", usage("a", NOON))] == ["not_assigned"]
    assert paid(town, HOUR) == {"unallocated": MONEY}


def test_nor_on_a_gpu_that_it_was_not_assigned_on(town: Ledger) -> None:
    town.node("node-1", gpus=2)
    town.assign("node-1", usage("a", NOON, gpu=0))
    assert [one.reason for one in town.claim("node-1", usage("b", NOON, gpu=1))] == ["not_assigned"]
    assert paid(town, HOUR) == {"unallocated": 2 * MONEY}


def test_an_assigned_copy_bills_whom_it_was_assigned_for_whatever_its_node_says(town: Ledger) -> None:
    town.assign("node-1", usage("a", NOON))
    (dropped,) = town.claim("node-1", usage("a", NOON, tenant="victim", service="shop"))
    assert dropped.reason == "not_assigned"
    assert paid(town, HOUR) == {"shop/search": MONEY // 2, "idle": MONEY // 2}


def test_it_bills_no_more_than_the_largest_share_that_it_was_assigned(town: Ledger) -> None:
    town.assign("node-1", usage("a", NOON, sm=25.0, memory=2.0))
    assert town.claim("node-1", usage("a", NOON, sm=100.0, memory=16.0, dedicated=True)) == []
    assert paid(town, HOUR) == {"shop/search": MONEY // 4, "idle": 3 * MONEY // 4}


def test_it_bills_from_its_assignment_on_at_the_earliest(town: Ledger) -> None:
    town.now = NOON + 30 * MINUTE
    town.tell("node-1", [usage("a", NOON)], at=town.now)
    assert town.claim("node-1", usage("a", NOON - 390 * DAY)) == []
    assert paid(town, HOUR) == {"shop/search": MONEY // 4, "idle": MONEY // 4, "unallocated": MONEY // 2}


def test_what_began_and_ended_before_it_bills_nothing(town: Ledger) -> None:
    town.now = NOON + 30 * MINUTE
    town.tell("node-1", [usage("a", NOON)], at=town.now)
    town.claim("node-1", usage("a", NOON, NOON + 10 * MINUTE))
    assert paid(town, HOUR) == {"unallocated": MONEY}


def test_of_an_instance_no_more_copies_pay_than_a_hand_over_has(town: Ledger) -> None:
    one = usage("a", NOON, sm=10.0, memory=0.1)
    town.assign("node-1", one)
    copies = [usage(f"a-{n}", NOON + n * MINUTE, sm=10.0, memory=0.1) for n in range(9)]
    for copy in copies:
        copy.instance = one.instance
    town.claim("node-1", one, *copies)
    found = paid(town, HOUR)
    assert abs(found["shop/search"] - MONEY // 5) <= 20, "a billionth a stretch"
    assert sum(found.values()) == MONEY


def test_the_older_copy_pays_again_when_newer_ones_have_ended(town: Ledger) -> None:
    one = usage("a", NOON, sm=100.0)
    town.assign("node-1", one)
    copies = [usage(f"a-{n}", NOON + MINUTE, NOON + 2 * MINUTE, sm=100.0) for n in range(2)]
    for copy in copies:
        copy.instance = one.instance
    town.claim("node-1", one, *copies)
    assert paid(town, HOUR) == {"shop/search": MONEY}


def test_a_replaced_assignment_takes_nothing_from_what_ran(town: Ledger) -> None:
    """A copy that ran for days, told late by a node that was cut off, and resized in between."""
    small, large = usage("a", NOON, sm=25.0), usage("a", NOON, sm=50.0)
    town.tell("node-1", [large], at=NOON)
    town.tell("node-1", [small], at=NOON + MINUTE)
    town.now = NOON + 2 * DAY
    town.tell("node-1", [usage("b", NOON)], at=town.now)
    town.passes(30 * MINUTE)
    assert town.claim("node-1", usage("a", NOON, town.now, sm=50.0)) == []
    ran = 2 * 24 * MONEY + MONEY // 2
    assert paid(town, 2 * DAY + 45 * MINUTE) == {"shop/search": ran // 2, "idle": ran // 2, "unallocated": MONEY // 4}


def test_a_copy_goes_on_for_a_day_after_it_was_withdrawn_and_no_longer(town: Ledger) -> None:
    town.claim("node-1")
    town.tell("node-1", [usage("a", NOON, sm=100.0)], at=NOON)
    town.claim("node-1", usage("a", NOON, sm=100.0))
    town.tell("node-1", [], at=NOON + HOUR)
    assert paid(town, 27 * HOUR) == {"shop/search": 25 * MONEY, "unallocated": 2 * MONEY}


def test_what_is_assigned_again_goes_on(town: Ledger) -> None:
    one = usage("a", NOON, sm=100.0)
    town.tell("node-1", [one], at=NOON)
    town.claim("node-1", one)
    town.tell("node-1", [], at=NOON + HOUR)
    town.tell("node-1", [one], at=NOON + 2 * HOUR)
    assert paid(town, 30 * HOUR) == {"shop/search": 30 * MONEY}
