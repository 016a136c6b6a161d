"""A language model's minute has its tokens, the times to its first ones, and how many answers kept the pace."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from agents.contract.fields import LATENCY_EDGES_MS
from agents.keeper.copies import NodeCopy, Stage
from agents.node.copy_counters import count_as_promised
from agents.node.report_minute import CopyTotals, ReportMinute, count_within
from agents.runtime import Running
from agents.seams.traffic import Counters, Served, TokensServed
from tests.support.nodes import served

CHAT = NodeCopy(
    "chat-1.1.1", served("chat-1", tpot_ms=50.0), "GPU-a", Stage.READY, running=Running("chat-1.1.1", 1, 1, "boot")
)
FIRST = (0,) * 30 + (8, 2)
PACE = (0,) * 20 + (9, 1)


def totals(tokens_in: int, tokens_out: int, counters: Counters) -> dict[str, CopyTotals]:
    return {CHAT.id: CopyTotals(counters, "gateway", Served(counters, tokens=TokensServed(tokens_in, tokens_out)))}


def test_a_minute_has_the_tokens_and_the_answers_since_it_began() -> None:
    minute = ReportMinute(datetime(2026, 3, 1, tzinfo=UTC), totals(100, 10, Counters(1, 0, (), 1, 1)))
    after = totals(350, 60, Counters(6, 0, (), 5, 2))
    entry = minute.instances([CHAT], {"GPU-a": 0}, after)["chat-1"]
    assert (entry.tokens_in, entry.tokens_out, entry.paced, entry.pace_late) == (250, 50, 4, 1)


def test_a_copy_that_began_again_counts_from_zero() -> None:
    minute = ReportMinute(datetime(2026, 3, 1, tzinfo=UTC), totals(1000, 500, Counters(9)))
    entry = minute.instances([CHAT], {"GPU-a": 0}, totals(30, 7, Counters(1)))["chat-1"]
    assert (entry.tokens_in, entry.tokens_out) == (30, 7)


def test_without_a_gateway_a_copys_own_figures_are_compared_with_the_promise() -> None:
    whole = Counters(10, 0, (0,) * 40 + (10,))
    counted = count_as_promised(Served(whole, tokens=TokensServed(100, 50, FIRST, PACE)), LATENCY_EDGES_MS[20])
    assert (counted.requests, counted.latency_counts, counted.paced, counted.pace_late) == (10, FIRST, 10, 1)
    other = msgspec.structs.replace(CHAT.wanted, tpot_ms=0.0)
    assert count_as_promised(Served(whole, tokens=TokensServed(100, 50, FIRST, PACE)), other.tpot_ms) == whole


def test_inside_a_bucket_counts_are_spread_evenly() -> None:
    low, high = LATENCY_EDGES_MS[19], LATENCY_EDGES_MS[20]
    assert count_within(PACE, (low + high) / 2) == 4.5
    assert count_within(PACE, LATENCY_EDGES_MS[21]) == 10
    assert count_within(PACE, 1e9) == 10
