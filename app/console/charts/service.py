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
from app.store.fleet.load_points import HourAhead, LoadPoint

PERCENTILES = {50.0: "t5", 95.0: "t0", 99.0: "t3"}  # each with its look
PROMISED = "t4"  # the look of another percentile, where one is promised


def service_charts(
    begins: Sequence[datetime], step: timedelta, points: Sequence[LoadPoint], latencies: Sequence[LatencyPoint],
    service: OverviewServiceWire, ahead: Sequence[HourAhead] = (),
) -> list[TimeChart]:  # fmt: skip
    """Returns the charts of a service's page; `ahead` are forecasts of hours that have not begun."""
    by_step = {point.begins: point for point in points}
    return [
        _draw_rates(begins, step, points, ahead),
        _draw_latencies(begins, step, latencies, service),
        draw_attained(
            begins, step, values_at(begins, by_step, lambda point: point.attained), service["percentile"] / 100
        ),
    ]  # fmt: skip


def _draw_rates(
    begins: Sequence[datetime], step: timedelta, points: Sequence[LoadPoint], ahead: Sequence[HourAhead]
) -> TimeChart:  # fmt: skip
    """Draws the rate over the band in which it was to lie, the rate that was planned for, and the next hours."""
    by_step = {point.begins: point for point in points}
    later = {hour.begins: hour for hour in ahead}
    shown = [*begins, *(hour.begins for hour in ahead)]
    lows, highs = (values_at(shown, by_step, read) for read in (lambda point: point.low, lambda point: point.high))
    series = [
        TimeSeries("Requests", values_at(shown, by_step, lambda point: point.rate), "t0"),
        TimeSeries("Planned for", values_at(shown, by_step, lambda point: point.planned), "t1"),
    ]
    if any(low is not None for low in lows):
        series.append(TimeSeries("Forecast ten minutes before", lows, "t5", tops=highs))
    if ahead:
        lows, highs = (values_at(shown, later, read) for read in (lambda hour: hour.low, lambda hour: hour.high))
        series.append(TimeSeries("Forecast of the next hours", lows, "t5 guess", tops=highs))
    return TimeChart("rate", "Rate", "requests a second", shown, step, series, note=_spell_bands(points))


def _spell_bands(points: Sequence[LoadPoint]) -> str:
    """Says how often the rate lay in its band; nothing while no forecast has been proved."""
    made, held = sum(point.bands for point in points), sum(point.bands_held for point in points)
    if not made:
        return ""
    return f"In {held:,} of {made:,} steps of ten minutes the rate lay in the band that was forecast; 80 % should."


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
