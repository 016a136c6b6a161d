"""The figures of a run are sums and means over its samples, as plain loops over seconds find them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.measure.figures import (
    CostMoment,
    FreshMoment,
    RequestCounts,
    RunSamples,
    cost_figures,
    request_figures,
    time_mean,
)

BEGAN = 300.0
PRICES = st.sampled_from([0.0, 0.5, 8.0, 10.0, 12.5, 13.0, 20.0])


@st.composite
def runs(draw: st.DrawFn) -> RunSamples:
    """Costs that change at whole seconds, from the first second on, and two samples of what could have been."""
    seconds = draw(st.integers(2, 60))
    later = draw(st.sets(st.integers(1, seconds - 1), max_size=8))
    costs = [CostMoment(BEGAN + at, draw(PRICES), draw(PRICES), draw(st.booleans())) for at in (0, *sorted(later))]
    second = draw(st.integers(1, seconds - 1))
    fresh = [FreshMoment(BEGAN + at, *(draw(PRICES) for _ in range(4))) for at in (0, second)]
    return RunSamples(BEGAN, BEGAN + seconds, costs, fresh)


@given(runs())
def test_costs_and_minutes_are_what_a_loop_over_the_seconds_finds(samples: RunSamples) -> None:
    held = planned = fresh = bound = 0.0
    waiting, above, longest, length = 0, 0, 0, 0
    seconds = int(samples.ended - samples.began)
    for second in range(seconds):
        now = samples.began + second
        cost = [moment for moment in samples.costs if moment.at <= now][-1]
        best = [moment for moment in samples.fresh if moment.at <= now][-1]
        held, planned = held + cost.held, planned + cost.planned
        fresh, bound = fresh + best.fresh, bound + best.bound
        waiting += cost.is_waiting
        length = length + 1 if cost.held > 1.25 * best.fresh else 0
        above, longest = above + (length > 0), max(longest, length)
    found = cost_figures(samples)
    assert found["heldPerHour"] == pytest.approx(held / seconds, abs=1e-6)
    assert found["plannedPerHour"] == pytest.approx(planned / seconds, abs=1e-6)
    assert found["freshPerHour"] == pytest.approx(fresh / seconds, abs=1e-6)
    assert found["boundPerHour"] == pytest.approx(bound / seconds, abs=1e-6)
    assert found["waitingMinutes"] == pytest.approx(waiting / 60, abs=0.005)
    assert found["minutesAboveFresh125"] == pytest.approx(above / 60, abs=0.005)
    assert found["longestMinutesAboveFresh125"] == pytest.approx(longest / 60, abs=0.005)


def test_every_request_is_within_its_slo_late_or_shed() -> None:
    counts = [
        (300.0, {"shop/a": RequestCounts(100, 100, 0, 0, 0.0), "shop/b": RequestCounts(50, 0, 50, 0, 0.0)}),
        (3600.0, {"shop/a": RequestCounts(1100, 1000, 40, 0, 0.0), "shop/b": RequestCounts(50, 0, 50, 0, 0.0)}),
        (7200.0, {"shop/a": RequestCounts(2100, 2000, 40, 0, 0.0), "shop/b": RequestCounts(150, 50, 90, 0, 0.0)}),
    ]
    found = request_figures(RunSamples(BEGAN, 7200.0, counts=list(counts)))
    assert (found["requests"], found["lateRequests"], found["shedRequests"]) == (2100, 70, 80)
    assert found["attainment"] == {
        "shop/a": {"share": 0.95, "worstHour": 0.9},
        "shop/b": {"share": 0.5, "worstHour": 0.5},
    }


def test_a_mean_over_no_time_is_nothing() -> None:
    assert time_mean([], 10.0) == 0.0
    assert time_mean([(10.0, 5.0)], 10.0) == 0.0
