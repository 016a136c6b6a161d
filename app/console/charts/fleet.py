"""The charts of the fleet: cost against the bound, answers in time, busy GPUs, power, changes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from app.console.charts.drawing import TimeChart, TimeSeries, Values, Write
from app.console.wording import money, number, percent
from app.store.fleet.fleet_minutes import FleetPoint
from app.store.fleet.load_points import LoadPoint
from app.store.plans.change_points import ChangePoint

OF_SHARE: Write = partial(percent, digits=2)
Point = TypeVar("Point")
FINER = 3  # digits of small numbers of kilowatts


@dataclass(frozen=True, slots=True)
class FleetPoints:
    """The fleet's figures over a range of time; a tenant sees only how its own services answered."""

    begins: Sequence[datetime]
    step: timedelta
    points: Sequence[FleetPoint] = ()
    changes: Sequence[ChangePoint] = ()
    own: Sequence[LoadPoint] = field(default=())
    tenant: str = ""


def values_at(
    begins: Sequence[datetime], points: Mapping[datetime, Point], read: Callable[[Point], float | None]
) -> Values:
    """Returns a value for each step; None where there is no point."""
    return [read(points[begin]) if begin in points else None for begin in begins]


def fleet_charts(found: FleetPoints, currency: str = "") -> list[TimeChart]:
    """Returns the charts of the page Fleet."""
    if found.tenant:
        own = {point.begins: point for point in found.own}
        return [draw_attained(found.begins, found.step, values_at(found.begins, own, lambda point: point.attained))]
    by_step = {point.begins: point for point in found.points}

    def values(read: Callable[[FleetPoint], float | None]) -> Values:
        return values_at(found.begins, by_step, read)

    return [
        _cost_chart(found, values, currency),
        draw_attained(found.begins, found.step, values(lambda point: point.attained)),
        TimeChart(
            "busy", "GPUs busy", "% of time", found.begins, found.step,
            [TimeSeries("Busy", values(lambda point: point.busy), "t0")], top=100.0, write=percent, scale=100.0,
            note="Of GPUs whose nodes report.",
        ),
        TimeChart(
            "power", "Power", "kW", found.begins, found.step,
            [TimeSeries("All GPUs", values(lambda point: _kilowatts(point.power_w)), "t0")], write=kilowatts,
            note="Of GPUs whose nodes report.",
        ),
        _change_chart(found),
    ]  # fmt: skip


def draw_attained(
    begins: Sequence[datetime], step: timedelta, attained: Values, promised: float | None = None
) -> TimeChart:  # fmt: skip
    """Returns the chart of answers within their SLO; `promised` is a service's share, where there is one."""
    series = [TimeSeries("Answered within the SLO", attained, "t0")]
    if promised is not None:
        series.append(TimeSeries("Promised now", [promised for _ in begins], "t1", is_promise=True))
    return TimeChart(
        "attained", "Answers within the SLO", "% of requests", begins, step, series, floor=None, top=100.0,
        write=OF_SHARE, scale=100.0,
    )  # fmt: skip


def kilowatts(value: float | None) -> str:
    """Returns 12.4, or 0.042 for a few watts."""
    return number(value) if value is None or value >= 1 else f"{value:.{FINER}f}"


def _kilowatts(watts: float | None) -> float | None:
    return None if watts is None else watts / 1000


def _cost_chart(
    found: FleetPoints, values: Callable[[Callable[[FleetPoint], float | None]], Values], currency: str
) -> TimeChart:  # fmt: skip
    return TimeChart(
        "cost", "Cost", f"{currency} an hour".strip(), found.begins, found.step,
        [
            TimeSeries("Held now", values(lambda point: point.held_cost), "t0"),
            TimeSeries("Planned", values(lambda point: point.planned_cost), "t1"),
            TimeSeries("Least possible", values(lambda point: point.bound), "t2"),
        ],
        write=money,
        note="Least possible: no plan that serves as much costs less.",
    )  # fmt: skip


def _change_chart(found: FleetPoints) -> TimeChart:
    by_step = {point.begins: point for point in found.changes}

    def values(read: Callable[[ChangePoint], float | None]) -> Values:
        return values_at(found.begins, by_step, read)

    return TimeChart(
        "changes", "Changes", "instances that plans changed", found.begins, found.step,
        [
            TimeSeries("Started", values(lambda point: point.starts), "t0"),
            TimeSeries("Stopped", values(lambda point: point.stops), "t1"),
            TimeSeries("Moved", values(lambda point: point.moves), "t2"),
            TimeSeries("Resized", values(lambda point: point.resizes), "t3"),
        ],
        is_stacked=True,
    )  # fmt: skip
