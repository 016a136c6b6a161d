"""The charts of a service: its rate against the planned rate, and its answers against its promise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.console.charts.drawing import TimeChart, TimeSeries
from app.console.charts.fleet import draw_attained, values_at
from app.store.fleet.load_points import LoadPoint


def service_charts(
    begins: Sequence[datetime], step: timedelta, points: Sequence[LoadPoint], percentile: float
) -> list[TimeChart]:
    """Returns the charts of a service's page; `percentile` is the promised one."""
    by_step = {point.begins: point for point in points}
    return [
        TimeChart(
            "rate", "Rate", "requests a second", begins, step,
            [
                TimeSeries("Requests", values_at(begins, by_step, lambda point: point.rate), "t0"),
                TimeSeries("Planned for", values_at(begins, by_step, lambda point: point.planned), "t1"),
            ],
        ),
        draw_attained(begins, step, values_at(begins, by_step, lambda point: point.attained), percentile / 100),
    ]  # fmt: skip
