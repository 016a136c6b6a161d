"""Whether SLOs are met: late or failed requests are misses, and alarms need a long and a short window to agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.control.tell.slo import WindowCounts, assess_all, assess_slo
from app.store.database.database import Database
from app.store.fleet import loads
from app.store.fleet.loads import WINDOWS, LoadBucket


def windows(**shares: float) -> dict[str, WindowCounts]:
    """A thousand answers in each window, of which a share was late."""
    return {name: WindowCounts(1000, 0, 1000 * shares.get(f"w{name}", 0.0)) for name in WINDOWS}


def test_what_is_late_and_what_fails_is_missed() -> None:
    assert WindowCounts(90, 10, 0).attainment == 0.9
    assert WindowCounts(100, 0, 5).attainment == 0.95
    assert WindowCounts(90, 10, 0).burn_rate(98) == pytest.approx(5)


def test_where_nothing_was_asked_nothing_is_known() -> None:
    assert (WindowCounts().attainment, WindowCounts().burn_rate(98)) == (None, None)
    assert assess_slo({name: WindowCounts() for name in WINDOWS}, 98).alarm == ""


def test_spending_exactly_the_allowance_leaves_nothing_and_raises_no_alarm() -> None:
    found = assess_slo(windows(**{f"w{name}": 0.02 for name in WINDOWS}), 98)
    assert found.burn_rates == {name: pytest.approx(1) for name in WINDOWS}
    assert found.budget_left == pytest.approx(0)
    assert found.alarm == ""


def test_a_fast_burn_wants_the_hour_and_the_last_minutes() -> None:
    assert assess_slo(windows(w5m=0.2, w1h=0.2), 99).alarm == "fast"
    assert assess_slo(windows(w5m=0.2), 99).alarm == ""
    assert assess_slo(windows(w1h=0.2), 99).alarm == ""


def test_a_slow_burn_wants_six_hours_and_the_last_half_hour() -> None:
    assert assess_slo(windows(w30m=0.08, w6h=0.08), 99).alarm == "slow"


def test_a_promise_that_allows_much_alarms_when_half_is_missed() -> None:
    assert assess_slo(windows(w5m=0.6, w1h=0.6), 90).alarm == "fast"


def test_a_single_late_answer_among_few_raises_no_alarm() -> None:
    few = {name: WindowCounts(3, 0, 1) for name in WINDOWS}
    assert assess_slo(few, 99).alarm == ""


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e9), st.floats(50, 99.9))
def test_an_attainment_is_a_share(answers: float, errors: float, slow: float, percentile: float) -> None:
    found = assess_slo({name: WindowCounts(answers, errors, slow) for name in WINDOWS}, percentile)
    assert all(0 <= share <= 1 for share in found.attainment.values())
    assert all(rate >= 0 for rate in found.burn_rates.values())


def test_windows_reach_as_far_as_they_say(database: Database) -> None:
    def bucket(ago: timedelta, slow: float) -> LoadBucket:
        return LoadBucket("shop", "search", datetime.now(UTC) - ago, 10, 100, 0, slow, [100], 100)

    buckets = [
        bucket(timedelta(minutes=1), 1), bucket(timedelta(minutes=20), 2), bucket(timedelta(minutes=50), 4),
        bucket(timedelta(hours=4), 8), bucket(timedelta(days=20), 16), bucket(timedelta(days=31), 32),
    ]  # fmt: skip
    database.repeatable(lambda connection: loads.keep(connection, buckets))
    for _ in range(2):  # as they came, and with old hours rolled up
        found = assess_all(database.read(loads.count_in_windows), {"shop/search": 98.0, "shop/new": 98.0})
        late = {name: 1 - share for name, share in found["shop/search"].attainment.items()}
        assert late == {
            "5m": pytest.approx(0.01), "30m": pytest.approx(0.015), "1h": pytest.approx(7 / 300),
            "6h": pytest.approx(15 / 400), "30d": pytest.approx(31 / 500),
        }  # fmt: skip
        assert found["shop/new"].attainment == {}
        while database.write(lambda connection: loads.roll_up(connection, 10)):
            pass
