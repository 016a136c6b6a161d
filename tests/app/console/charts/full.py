"""The charts of a fleet of which everything is known at every step: the largest that a page can have."""

from __future__ import annotations

from datetime import UTC, datetime

from app.console.charts.fleet import FleetPoints, fleet_charts
from app.console.charts.ranges import RANGES
from app.console.charts.section import ChartSection, draw_section
from app.store.fleet.fleet_minutes import FleetPoint
from app.store.plans.change_points import ChangePoint


def full_charts(at: datetime) -> ChartSection:
    span = RANGES[-1]
    begins = span.begins(at, span.step)
    points = [
        FleetPoint(begin, 1e6 + step * 7, 9e5 + step * 5, 8e5 + step * 3, step / 200, 1e5 + step * 33, 1 - step / 1e4)
        for step, begin in enumerate(begins)
    ]
    changes = [ChangePoint(begin, 100 + step, 200, 300, 400 - step) for step, begin in enumerate(begins)]
    charts = fleet_charts(FleetPoints(begins, span.step, points, changes), "EUR")
    return draw_section(charts, span, UTC, lambda name, table: f"/?range={name}&table={table}", "cost")
