"""A gateway's tokens become increases and buckets, and an SLO of tokens is missed by first tokens or by the pace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agents.contract.gateways import GatewayCounts, LengthTotals, ServiceCounts, TokenTotals
from app.control.observe.loads.differences import CounterIncrease, GatewayTotals, NodeTotals
from app.control.observe.loads.window import GATEWAY, LoadWindow
from tests.support.words import received_report, served

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def counts(sequence: int, requests: int, late: int, tokens: TokenTotals | None, began: str = "a") -> GatewayCounts:
    service = ServiceCounts("lab/chat", requests, latency_counts=(requests,), timed=requests, late=late, tokens=tokens)
    return GatewayCounts(began, sequence, (service,))


def increase(*reports: GatewayCounts) -> CounterIncrease:
    totals = GatewayTotals()
    spans = [totals.next(NOW + timedelta(seconds=at), report) for at, report in enumerate(reports)]
    last = spans[-1]
    assert last is not None
    return last.increases["lab/chat"]


def test_tokens_between_two_reports_are_their_difference() -> None:
    first, second = TokenTotals(100, 10, 1, 1), TokenTotals(900, 80, 5, 2)
    assert increase(counts(1, 1, 0, first), counts(2, 6, 0, second)).tokens == TokenTotals(800, 70, 4, 1)


def test_a_gateway_that_began_again_counts_from_zero() -> None:
    first, second = TokenTotals(900, 80, 5, 2), TokenTotals(100, 10, 1, 1)
    assert increase(counts(1, 9, 0, first), counts(2, 1, 0, second, "b")).tokens == second


def test_lengths_are_those_of_the_answers_since_and_all_that_a_gateway_has_counted_at_first() -> None:
    def said(sequence: int, answers: int, began: str = "a") -> GatewayCounts:
        lengths = LengthTotals(answers, 100 * answers, 10 * answers)
        return GatewayCounts(began, sequence, (ServiceCounts("lab/chat", answers, lengths=lengths),))

    first, second, third = said(1, 50), said(2, 60), said(3, 90)
    assert increase(first, second).lengths == LengthTotals(60, 6000, 600)
    assert increase(first, second, third).lengths == LengthTotals(30, 3000, 300)
    assert increase(first, second, third, said(4, 90)).lengths is None
    assert increase(first, second, third, said(4, 20, "b")).lengths == LengthTotals(20, 2000, 200)


def test_an_older_gateway_has_no_tokens() -> None:
    assert increase(counts(1, 1, 0, None), counts(2, 5, 0, None)).tokens == TokenTotals()


def test_without_a_gateway_the_minutes_of_nodes_have_the_tokens() -> None:
    node = NodeTotals()
    spans = []
    for seconds, count in ((10, 100), (20, 350)):
        line = served(count, tokensIn=10 * count, tokensOut=count, paced=count, paceLate=count // 10)
        spans.append(node.next(received_report("n", seconds, line).report))
    assert spans[1] is not None
    assert spans[1].increases["shop/search"].tokens == TokenTotals(2500, 250, 250, 25)


def test_what_missed_more_counts_as_slow() -> None:
    zero = counts(1, 0, 0, None)
    assert increase(zero, counts(2, 10, 3, TokenTotals(0, 0, 10, 5))).slow(1000.0) == 5
    assert increase(zero, counts(2, 10, 3, TokenTotals(0, 0, 10, 2))).slow(1000.0) == 3


def test_a_bucket_has_the_tokens_of_its_seconds() -> None:
    window = LoadWindow("lab/chat")
    window.slo_ms = 1000.0
    window.rates[GATEWAY]["edge"] = 1.0
    for _ in range(2):
        window.add(GATEWAY, CounterIncrease(10, 0, [10], 0, 10, 0, (), TokenTotals(500, 60, 9, 1)), 1.0)
    window.passed(1.0, 9.0)
    bucket = window.passed(9.0, 11.0)
    assert bucket is not None
    assert (bucket.tokens_in, bucket.tokens_out, bucket.paced, bucket.pace_late) == (1000, 120, 18, 2)
    assert (bucket.answers, bucket.slow) == (20, 2)
