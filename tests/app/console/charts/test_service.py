"""A service's latencies over time: percentiles with the promised one among them, against its SLO."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from app.console.charts.drawing import chart_rows, draw_chart
from app.console.charts.service import service_charts
from app.console.wording import number
from app.store.fleet.latency_points import LatencyPoint
from app.store.fleet.load_points import HourAhead, LoadPoint
from tests.app.console.test_drawing import service

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def latency_chart(**fields: Any) -> Any:
    counts = [0] * 20 + [98, 2]
    begins = [NOON, NOON + HOUR]
    charts = service_charts(begins, HOUR, [], [LatencyPoint(NOON, counts)], service("shop/a", **fields))  # type: ignore[arg-type]
    return next(chart for chart in charts if chart.id == "latency")


def test_the_promised_percentile_is_among_those_that_are_drawn() -> None:
    chart = latency_chart(sloMs=80.0, percentile=98.0)
    assert [line.name for line in chart.series] == ["p50", "p95", "p98", "p99", "SLO at p98"]
    values = [line.values[0] for line in chart.series]
    assert values[0] < values[1] < values[2] == pytest.approx(LATENCY_EDGES_MS[20])
    assert LATENCY_EDGES_MS[20] < values[3] < LATENCY_EDGES_MS[21]
    assert chart.series[-1].values == [80.0, 80.0]
    assert {line.values[1] for line in chart.series[:-1]} == {None}, "nothing was answered in the second hour"


def test_the_rate_lies_over_the_band_that_was_forecast_and_the_next_hours_have_one() -> None:
    begins = [NOON, NOON + HOUR, NOON + 2 * HOUR]
    points = [
        LoadPoint(NOON, 100.0, 120.0, 1.0, 80.0, 110.0, 6, 5),
        LoadPoint(NOON + 2 * HOUR, 90.0, 120.0, 1.0, 70.0, 130.0, 2, 2),
    ]
    ahead = [HourAhead(NOON + 3 * HOUR, 60.0, 90.0, 140.0)]
    chart = service_charts(begins, HOUR, points, [], service("shop/a"), ahead)[0]  # type: ignore[arg-type]
    assert chart.note == "In 7 of 8 steps of ten minutes the rate lay in the band that was forecast; 80 % should."
    drawing = draw_chart(chart, "the last hours")
    bands = [(look, path.count("M"), path.count("L")) for look, path in drawing.paths if look.startswith("band")]
    assert bands == [("band t5", 2, 6), ("band t5 guess", 1, 3)], "a box for each step with a band, none for the gap"
    assert [line.words for line in drawing.legend if line.is_band] == ["70 to 130", "60 to 140"]
    newest, *_, oldest = chart_rows(chart, UTC)
    assert newest == ("2 Mar 15:00", (number(None), number(None), number(None), "60 to 140"))
    assert oldest == ("2 Mar 12:00", ("100", "120", "80 to 110", number(None)))


def test_without_a_forecast_there_is_no_band() -> None:
    chart = service_charts([NOON], HOUR, [LoadPoint(NOON, 100.0, 120.0, 1.0)], [], service("shop/a"))[0]  # type: ignore[arg-type]
    assert [line.name for line in chart.series] == ["Requests", "Planned for"]
    assert chart.note == ""


def test_a_promise_at_a_usual_percentile_adds_no_line() -> None:
    assert [line.name for line in latency_chart(percentile=95.0).series] == ["p50", "p95", "p99", "SLO at p95"]


def test_a_language_models_latency_is_that_of_the_first_token() -> None:
    assert latency_chart(tpotMs=30.0).title == "First token"
