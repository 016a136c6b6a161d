"""Draws plans of which none is worse than another in everything: money over energy. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from app.console.charts.drawing import (
    ChartDrawing,
    LegendLine,
    draw_dots,
    draw_steps,
    make_drawing,
    mark_values,
    place_x,
    place_y,
)
from app.console.charts.scales import value_axis
from app.console.wording import money, number
from app.control.answer.whatif.wire import ObjectivePointWire


def draw_front(points: Sequence[ObjectivePointWire], currency: str = "") -> ChartDrawing:
    """Draws plans of which none is worse than another in everything: money over energy; there is at least one."""
    unit = f"{currency} an hour".strip()
    across = value_axis([point["energyKwh"] for point in points], None, None)
    axis = value_axis([point["moneyPerHour"] for point in points], None, None)
    ordered = sorted(points, key=lambda point: (point["energyKwh"], -point["moneyPerHour"]))
    places = [(place_x(across.place(plan["energyKwh"])), place_y(axis.place(plan["moneyPerHour"]))) for plan in ordered]
    named = [
        f"{money(point['moneyPerHour'])} with {number(point['energyKwh'])} kWh"
        + (f", best in {' and '.join(point['best'])}" if point["best"] else "")
        for point in ordered
    ]
    legend = [LegendLine("t0", "plans", str(len(ordered)))]
    return make_drawing(
        "front", "Money against energy", f"{unit}, by kWh an hour",
        f"Plans of which none is worse than another in everything, {unit}: {'; '.join(named)}.",
        axis, mark_values(across), [("line t0 guess", _draw_front(places)), ("points t0", draw_dots(places))], legend,
    )  # fmt: skip


def _draw_front(places: Sequence[tuple[float, float]]) -> str:
    """Returns steps through the places that no other is left of and below; one more good may have places off it."""
    best = [place for at, place in enumerate(places) if all(other[1] < place[1] for other in places[:at])]
    return draw_steps(best)
