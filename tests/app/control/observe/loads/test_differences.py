"""Increments between two reports of a node or gateway, whatever happened to the reports between."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from agents.contract.gateways import GatewayCounts, ServiceCounts
from app.control.observe.loads.differences import CounterIncrease, GatewayTotals, NodeTotals
from tests.support.words import at, fast, gateway, received_report, served


def test_a_later_word_of_the_minute_says_what_came_since() -> None:
    node = NodeTotals()
    node.next(received_report("n", 10, served(100)).report)
    span = node.next(received_report("n", 20, served(350)).report)
    assert span is not None
    assert (span.seconds, span.increases["shop/search"].requests, sum(span.increases["shop/search"].counts)) == (
        10,
        250,
        250,
    )
    assert span.rates == {"shop/search": 25.0}


def test_the_next_report_includes_a_lost_one() -> None:
    node = NodeTotals()
    node.next(received_report("n", 10, served(100)).report)
    span = node.next(received_report("n", 40, served(700)).report)
    assert span is not None
    assert span.rates == {"shop/search": 20.0}


def test_a_minute_that_ended_and_the_next_meet_without_a_gap() -> None:
    node = NodeTotals()
    node.next(received_report("n", 52, served(520)).report)
    end = node.next(received_report("n", 64, served(600), minute=at(0)).report)
    begun = node.next(received_report("n", 64.1, served(41), minute=at(60)).report)
    assert end is not None and begun is not None
    assert end.seconds == pytest.approx(8)
    assert begun.seconds == pytest.approx(4.1)
    assert end.rates["shop/search"] == pytest.approx(10)
    assert begun.rates["shop/search"] == pytest.approx(10)


def test_a_short_time_is_read_together_with_the_one_before_if_that_was_short_too() -> None:
    node = NodeTotals()
    node.next(received_report("n", 58, served(580)).report)
    node.next(received_report("n", 60.2, served(590), minute=at(0)).report)
    span = node.next(received_report("n", 60.3, served(30), minute=at(60)).report)
    assert span is not None
    assert span.seconds == pytest.approx(0.3)
    assert span.rates["shop/search"] == pytest.approx(40 / 2.3)


def test_doubled_and_late_words_say_nothing() -> None:
    node = NodeTotals()
    node.next(received_report("n", 20, served(200)).report)
    assert node.next(received_report("n", 20, served(200)).report) is None
    assert node.next(received_report("n", 10, served(100)).report) is None


def test_a_restarted_agent_counts_from_zero() -> None:
    node = NodeTotals()
    node.next(received_report("n", 10, served(100)).report)
    span = node.next(received_report("n", 20, served(50), incarnation=2).report)
    assert span is not None
    assert span.rates == {"shop/search": 5.0}


def test_when_an_old_copy_is_gone_its_successor_is_no_flood() -> None:
    node = NodeTotals()
    node.next(received_report("n", 10, served(0)).report)
    node.next(received_report("n", 20, served(1000)).report)
    span = node.next(received_report("n", 30, served(900)).report)
    assert span is not None
    assert span.rates == {"shop/search": 100.0}


def test_a_clock_set_back_speaks_of_no_time_and_is_believed_from_then_on() -> None:
    node = NodeTotals()
    node.next(received_report("n", 10, served(100)).report)
    hour = timedelta(hours=1)
    back = msgspec.structs.replace(received_report("n", 20, served(500)).report, at=at(20) - hour, minute=at(0) - hour)
    span = node.next(back)
    assert span is not None
    assert span.seconds == 0
    later = msgspec.structs.replace(received_report("n", 30, served(600)).report, at=at(30) - hour, minute=at(0) - hour)
    span = node.next(later)
    assert span is not None
    assert span.rates == {"shop/search": 10.0}


def test_a_count_that_cannot_be_is_dropped_and_counted() -> None:
    node = NodeTotals()
    node.next(received_report("n", 10, served(100)).report)
    span = node.next(received_report("n", 20, served(10**12)).report)
    assert span is not None
    assert (span.impossible, span.rates) == (1, {"shop/search": 0.0})


def test_a_gateway_s_first_word_is_where_counting_begins() -> None:
    totals = GatewayTotals()
    first = totals.next(at(0), gateway("g", 0, search=1_000_000).counts)
    assert first is not None
    assert first.increases["shop/search"].requests == 0
    span = totals.next(at(1), gateway("g", 1, search=1_000_050).counts)
    assert span is not None
    assert span.increases["shop/search"].requests == 50


def test_a_restarted_gateway_counts_from_zero() -> None:
    totals = GatewayTotals()
    totals.next(at(0), gateway("g", 0, search=1000).counts)
    span = totals.next(at(10), gateway("g", 10, began="b", search=30).counts)
    assert span is not None
    assert span.rates == {"shop/search": 3.0}


def test_who_waits_at_a_gateway_was_asked_for_when_they_came() -> None:
    totals = GatewayTotals()
    came = []
    for second, (ended, waiting) in enumerate([(1000, 0), (1040, 60), (1080, 120), (1280, 0), (1280, 0)]):
        counts_then = GatewayCounts("a", second, (ServiceCounts("shop/search", ended, open=waiting),))
        span = totals.next(at(second), counts_then)
        assert span is not None
        came.append(span.increases["shop/search"].requests)
    assert came == [0, 100, 100, 80, 0]


def test_what_a_gateway_has_timed_needs_no_histogram() -> None:
    coarse = fast(100, 80.0)  # in the bucket that an SLO of 79 ms cuts
    timed = CounterIncrease(100.0, 0, coarse, timed=100, late=3)
    assert timed.slow(79.0) == timed.surely_slow(79.0) == 3
    increase = CounterIncrease(100.0, 0, coarse)
    assert 0 < increase.slow(79.0) < 100
    assert increase.surely_slow(79.0) == 0
    assert increase.surely_slow(10.0) == 100
