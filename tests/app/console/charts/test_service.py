"""A service's latencies over time: percentiles with the promised one among them, against its SLO."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from app.console.charts.service import service_charts
from app.store.fleet.latency_points import LatencyPoint
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


def test_a_promise_at_a_usual_percentile_adds_no_line() -> None:
    assert [line.name for line in latency_chart(percentile=95.0).series] == ["p50", "p95", "p99", "SLO at p95"]


def test_a_language_models_latency_is_that_of_the_first_token() -> None:
    assert latency_chart(tpotMs=30.0).title == "First token"
