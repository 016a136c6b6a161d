"""The charts of a service: its rate against the planned rate, its latency, and answers against its promise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.api.answers.overview import OverviewServiceWire
from app.console.charts.drawing import TimeChart, TimeSeries
from app.console.charts.fleet import draw_attained, values_at
from app.console.wording import number
from app.control.domain.latencies import quantile_ms
from app.store.fleet.latency_points import LatencyPoint
from app.store.fleet.load_points import LoadPoint

PERCENTILES = {50.0: "t5", 95.0: "t0", 99.0: "t3"}  # each with its look
PROMISED = "t4"  # the look of another percentile, where one is promised


def service_charts(
    begins: Sequence[datetime], step: timedelta, points: Sequence[LoadPoint], latencies: Sequence[LatencyPoint],
    service: OverviewServiceWire,
) -> list[TimeChart]:  # fmt: skip
    """Returns the charts of a service's page."""
    by_step = {point.begins: point for point in points}
    return [
        TimeChart(
            "rate", "Rate", "requests a second", begins, step,
            [
                TimeSeries("Requests", values_at(begins, by_step, lambda point: point.rate), "t0"),
                TimeSeries("Planned for by forecast", values_at(begins, by_step, lambda point: point.planned), "t1"),
            ],
        ),
        _draw_latencies(begins, step, latencies, service),
        draw_attained(
            begins, step, values_at(begins, by_step, lambda point: point.attained), service["percentile"] / 100
        ),
    ]  # fmt: skip


def _draw_latencies(
    begins: Sequence[datetime], step: timedelta, latencies: Sequence[LatencyPoint], service: OverviewServiceWire
) -> TimeChart:  # fmt: skip
    """Draws the median and high percentiles, with the promised one among them, against the SLO."""
    by_step = {point.begins: point for point in latencies}
    looks = dict(sorted(({service["percentile"]: PROMISED} | PERCENTILES).items()))
    series = [
        TimeSeries(
            f"p{percentile:g}",
            values_at(begins, by_step, lambda point, at=percentile: quantile_ms(point.counts, at)),  # type: ignore[misc]
            look,
        )
        for percentile, look in looks.items()
    ]
    slo = TimeSeries(f"SLO at p{service['percentile']:g}", [service["sloMs"] for _ in begins], "t1", is_promise=True)
    return TimeChart(
        "latency", "First token" if service["tpotMs"] else "Latency", "milliseconds", begins, step, [*series, slo],
        write=number, note="Counted in buckets, each a fifth wider than the one before it.",
    )  # fmt: skip
