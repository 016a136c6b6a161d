"""A chart is true: round axes, gaps where nothing is known, and the same data in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.console.charts.drawing import BOTTOM, LEFT, RIGHT, TOP, TimeChart, TimeSeries, chart_rows, draw_chart
from app.console.charts.money import LEAST_DAYS, days_until, money_charts
from app.console.charts.ranges import DAY, LEAST_STEPS, RANGES, choose_range, read_range
from app.console.charts.scales import time_ticks, value_axis
from app.console.wording import NOTHING, money, percent
from app.store.money.cost_days import DayCost

AT = datetime(2026, 6, 1, 12, 3, tzinfo=UTC)
HOUR = timedelta(hours=1)
SPAN = "the last 4 hours"


def chart(*values: Sequence[float | None], **fields: Any) -> TimeChart:
    begins = [AT.replace(minute=0) + HOUR * at for at in range(len(values[0]))]
    series = [TimeSeries(f"Line {at}", line, f"t{at}") for at, line in enumerate(values)]
    return TimeChart("rate", "Rate", "requests a second", begins, HOUR, series, **fields)


def places(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([3.0, 9.7], ["0", "2", "4", "6", "8", "10"]),
        ([0.11], ["0", "0.025", "0.050", "0.075", "0.100", "0.125"]),
        ([1500.0, 4100.0], ["0", "1k", "2k", "3k", "4k", "5k"]),
        ([2.4e9], ["0", "500M", "1000M", "1500M", "2000M", "2500M"]),
        ([7e21], ["0", "2e+21", "4e+21", "6e+21", "8e+21"]),
        ([], ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([0.0, 0.0], ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    ],
)
def test_the_axis_of_values_has_round_marks(values: list[float], labels: list[str]) -> None:
    axis = value_axis(values, 0.0, None)
    assert [axis.label(tick) for tick in axis.ticks] == labels
    assert axis.low <= min(values, default=0.0) and axis.high >= max(values, default=1.0)


def test_an_axis_of_shares_begins_below_the_least_and_ends_at_a_hundred() -> None:
    axis = value_axis([99.31, 99.98], floor=None, top=100.0)
    assert [axis.low, axis.high] == pytest.approx([99.2, 100.0])
    whole = value_axis([100.0, 100.0], floor=None, top=100.0)
    assert [whole.low, whole.high] == pytest.approx([99.0, 100.0])


def test_marks_of_time_are_round_in_the_zone_and_few() -> None:
    day = time_ticks(AT - 24 * HOUR, AT, UTC)
    assert [words for _, words in day] == ["16:00", "20:00", "00:00", "04:00", "08:00", "12:00"]
    kathmandu = time_ticks(AT - 24 * HOUR, AT, ZoneInfo("Asia/Kathmandu"))
    assert [at.minute for at, _ in kathmandu] == [15] * 6, "midnight there is at 18:15 UTC"
    month = time_ticks(AT - 720 * HOUR, AT, ZoneInfo("Europe/Berlin"))
    assert 4 <= len(month) <= 7 and all(re.fullmatch(r"\d+ (May|Jun)", words) for _, words in month)
    assert {at.astimezone(UTC).hour for at, _ in month} == {22}
    for span in RANGES:
        assert 3 <= len(time_ticks(AT - span.length, AT, UTC)) <= 8, span.name


def test_a_line_stops_where_nothing_is_known_and_begins_again_after_it() -> None:
    drawn = draw_chart(chart([1.0, 2.0, None, 4.0, None, 6.0]), SPAN)
    ((look, path),) = drawn.paths
    assert look == "line t0"
    assert [part[0] for part in re.findall(r"[ML]-?[\d.]+ -?[\d.]+", path)] == ["M", "L", "M", "M"]
    assert path.count("h0") == 3, "a lone value is a dot"
    assert [x for x, _ in places(path)] == sorted(x for x, _ in places(path))
    assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for x, y in places(path))


def test_one_value_is_a_dot_and_none_is_said() -> None:
    one = draw_chart(chart([None, 5.0, None]), SPAN)
    assert len(places(one.paths[0][1])) == 1
    assert one.sentence.endswith("Line 0: 5 at 1 Jun 13:00, between 5 and 5.")
    none = draw_chart(chart([None, None, None]), SPAN)
    assert (none.is_empty, none.paths) == (True, ())
    assert none.sentence == "Rate, requests a second, the last 4 hours. Line 0: unknown."


def test_huge_values_stay_inside_the_drawing() -> None:
    drawn = draw_chart(chart([1e-9, 3e18, 1e300]), SPAN)
    assert all(TOP <= y <= BOTTOM for _, y in places(drawn.paths[0][1]))
    assert all(len(words) <= 6 for _, words in drawn.value_ticks)


def test_bars_lie_on_each_other_and_the_axis_reaches_their_sum() -> None:
    drawn = draw_chart(chart([1.0, None], [3.0, 4.0], is_stacked=True), SPAN)
    assert [words for _, words in drawn.value_ticks] == ["0", "1", "2", "3", "4"]
    first, second = (places(path) for _, path in drawn.paths)
    assert first[0][1] == BOTTOM
    assert second[0][1] == pytest.approx(BOTTOM - (BOTTOM - TOP) / 4), "above the first of its step"
    assert second[1][1] == BOTTOM
    assert "Line 1: 7 in all" in drawn.sentence


def test_the_table_has_the_known_steps_newest_first_in_the_words_of_the_zone() -> None:
    made = chart([1.0, None, 3.5], [None, None, 2.0], write=money)
    assert list(chart_rows(made, ZoneInfo("Europe/Berlin"))) == [
        ("1 Jun 16:00", ("3.50", "2.00")),
        ("1 Jun 14:00", ("1.00", NOTHING)),
    ]
    drawn = draw_chart(made, SPAN)
    assert [(line.name, line.words) for line in drawn.legend] == [("Line 0", "3.50"), ("Line 1", "2.00")]


def test_shares_are_drawn_in_percent() -> None:
    drawn = draw_chart(chart([0.995, 1.0], floor=None, top=100.0, scale=100.0, write=percent), SPAN)
    assert drawn.value_ticks[-1] == (TOP, "100.0")
    assert places(drawn.paths[0][1])[1][1] == TOP


def test_every_range_has_about_a_hundred_steps_and_ends_with_now() -> None:
    for span in RANGES:
        for step in (span.step, span.load_step):
            begins = span.begins(AT, step)
            assert 25 <= len(begins) <= 125
            assert begins[-1] <= AT < begins[-1] + step and begins[0] <= AT - span.length
    now = datetime(2026, 6, 1, tzinfo=UTC)
    assert choose_range("7d", None, now).name == read_range("7d") == "7d"
    assert choose_range("", None, now) is choose_range("", now - timedelta(days=2), now) is DAY
    assert read_range("90d") == ""
    assert choose_range("", now - timedelta(minutes=20), now).name == "1h", "a day's charts would show a dot"


def test_a_range_begins_with_the_first_plan_and_has_a_few_steps_at_least() -> None:
    oldest = AT - timedelta(hours=5)
    day = choose_range("", oldest, AT)
    begins = day.begins(AT, day.step)
    assert begins[0] <= oldest < begins[1] and begins[-1] <= AT < begins[-1] + day.step
    assert (day.name, day.words) == ("24h", "24 hours, since the first plan")
    assert len(day.begins(AT, day.load_step)) == LEAST_STEPS + 1
    assert choose_range("", AT - day.length, AT) is DAY, "nothing is missing"
    young = choose_range("", AT - timedelta(minutes=2), AT)
    assert len(young.begins(AT, young.step)) == LEAST_STEPS + 1


def test_the_days_of_money_begin_with_the_first_cost_and_are_a_week_at_least() -> None:
    days = days_until(AT)
    for back, shown in ((0, LEAST_DAYS), (9, 10), (29, 30)):
        costs = [DayCost(days[-1 - back], "shop/a", 1.0)]
        (chart,) = money_charts(days, [], costs, "EUR")
        assert (len(chart.begins), sum(filter(None, chart.series[0].values))) == (shown, 1.0)
    assert len(money_charts(days, [], [], "")[0].begins) == LEAST_DAYS
