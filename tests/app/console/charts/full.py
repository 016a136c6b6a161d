"""The charts of a fleet and of a node of which everything is known at every step: the largest that a page can have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from app.console.charts.fleet import FleetPoints, fleet_charts
from app.console.charts.lanes import MOST_LANES, draw_lanes
from app.console.charts.node import MOST_LINES, MOST_REASONS, node_charts
from app.console.charts.ranges import RANGES
from app.console.charts.section import ChartSection, draw_section
from app.store.fleet.fleet_minutes import FleetPoint
from app.store.fleet.gpu_holdings import GpuTenure
from app.store.fleet.gpu_points import AilingPoint, GpuPoint
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


def full_node_page(at: datetime) -> dict[str, Any]:
    """The charts and lanes of a node whose copies move in each step."""
    span = RANGES[-1]
    begins = span.begins(at, span.step)
    points = [
        GpuPoint(begin, gpu, step / 200, step / 3, 300 + step / 7, 40 + step / 9, 1400 + step * 1.7)
        for step, begin in enumerate(begins)
        for gpu in range(MOST_LINES)
    ]
    ailing = [AilingPoint(begin, f"xid_{reason}", 7) for begin in begins for reason in range(MOST_REASONS)]
    tenures = [
        GpuTenure(gpu, "tenant", f"service-{step % 30}-{copy}", "", 30 + step / 9, begin, begin + span.step)
        for step, begin in enumerate(begins)
        for gpu in range(MOST_LANES)
        for copy in range(2)
    ]
    section = draw_section(
        node_charts(begins, span.step, points, ailing),
        span,
        UTC,
        lambda name, table: f"/nodes/n?range={name}&table={table}",
        "power",
    )
    return {"lanes": draw_lanes(range(64), tenures, (), begins, span.step, at, UTC), "charts": section}
