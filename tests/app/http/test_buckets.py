"""Token buckets: exact over time, bounded in number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.http.buckets import Buckets


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    buckets = Buckets(per_second=2.0, burst=3.0)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) == 0.5


def test_one_caller_does_not_spend_anothers() -> None:
    buckets = Buckets(per_second=1.0, burst=1.0)
    assert buckets.take("a", 0.0) == 0.0
    assert buckets.take("b", 0.0) == 0.0


def test_asking_how_long_spends_nothing() -> None:
    buckets = Buckets(per_second=1.0, burst=1.0)
    assert [buckets.wait("a", 0.0) for _ in range(3)] == [0.0] * 3
    assert buckets.take("a", 0.0) == 0.0
    assert buckets.wait("a", 0.25) == 0.75


def test_a_million_addresses_take_a_bounded_number_of_buckets() -> None:
    buckets = Buckets(per_second=1.0, burst=1.0, keys=100)
    for number in range(10_000):
        buckets.take(str(number), 0.0)
    assert len(buckets) == 100


@given(st.lists(st.floats(0, 0.5), max_size=200), st.floats(0.5, 20), st.integers(1, 20))
def test_never_more_than_burst_plus_rate_times_time(pauses: list[float], rate: float, burst: int) -> None:
    buckets, now, taken = Buckets(rate, burst), 0.0, 0
    for pause in pauses:
        now += pause
        taken += buckets.take("a", now) == 0.0
    assert taken <= burst + rate * now + 1e-6
