"""Both promises of a language model are counted apart, and never contradict what the SLO as a whole attained."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contract.fields import LATENCY_EDGES_MS
from app.control.tell.slo import WindowCounts
from app.control.tell.token_shares import TokenShares, count_token_shares
from app.store.database.database import Database
from app.store.fleet import loads
from app.store.fleet.loads import LoadBucket, TokenAnswers

EDGE = 20
TTFT_MS = LATENCY_EDGES_MS[EDGE]
IN_TIME = [0] * EDGE + [100]


def test_without_requests_neither_share_is_known() -> None:
    assert count_token_shares([], TTFT_MS) == TokenShares(None, None)
    assert count_token_shares([TokenAnswers(0, 0, 0, [], 0, 0)], TTFT_MS) == TokenShares(None, None)


def test_late_first_tokens_are_those_counted_or_where_the_pace_missed_more_those_of_the_histogram() -> None:
    counted = TokenAnswers(100, 0, 8, IN_TIME, 100, 2)
    hidden = TokenAnswers(100, 0, 10, [0] * EDGE + [96, 4], 100, 10)
    assert count_token_shares([counted], TTFT_MS) == TokenShares(0.92, 0.98)
    assert count_token_shares([hidden], TTFT_MS) == TokenShares(0.96, 0.9)
    assert count_token_shares([counted, hidden], TTFT_MS) == TokenShares(0.94, 0.94)


def test_errors_have_no_first_token_and_no_pace() -> None:
    assert count_token_shares([TokenAnswers(60, 40, 0, [*IN_TIME[:-1], 60], 60, 0)], TTFT_MS) == TokenShares(0.6, 1.0)


@given(st.integers(1, 100), st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_the_share_of_first_tokens_is_never_below_what_the_slo_attained(
    answers: int, errors: int, late: int, pace_late: int
) -> None:
    late, pace_late = min(late, answers), min(pace_late, answers)
    counts = [0] * EDGE + [answers - late, late]
    slow = max(late, pace_late)
    attained = WindowCounts(answers, errors, slow).attainment
    found = count_token_shares([TokenAnswers(answers, errors, slow, counts, answers, pace_late)], TTFT_MS)
    assert attained is not None and found.first is not None
    assert found.first >= attained
    assert found.first == pytest.approx((answers - late) / (answers + errors))


def test_only_the_services_own_buckets_within_the_window_count(database: Database) -> None:
    def bucket(minutes: float, service: str, slow: float) -> LoadBucket:
        at = datetime.now(UTC) - timedelta(minutes=minutes)
        return LoadBucket("shop", service, at, 10, 100, 0, slow, IN_TIME, 100, "", 5, 5, 80, 4)

    buckets = [bucket(1, "chat", 10), bucket(20, "chat", 30), bucket(40, "chat", 100), bucket(1, "other", 100)]
    database.repeatable(lambda connection: loads.keep(connection, buckets))
    found = database.read(
        lambda connection: loads.read_token_answers(connection, "shop", "chat", timedelta(minutes=30))
    )
    assert count_token_shares(found, TTFT_MS) == TokenShares(0.8, 0.95)
