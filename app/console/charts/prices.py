"""Draws what a fleet costs at each risk, the smaller one to the right. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from app.console.charts.drawing import BOTTOM, LEFT, RIGHT, TOP, ChartDrawing, LegendLine
from app.console.charts.scales import value_axis
from app.console.wording import money
from app.control.answer.whatif.wire import RiskPriceWire


def draw_risks(prices: Sequence[RiskPriceWire], currency: str = "") -> ChartDrawing:
    """Draws a line through the prices, of which there is at least one; risks are placed by their logarithms."""
    points = sorted(prices, key=lambda price: -price["risk"])
    axis = value_axis([price["resourceCost"] for price in points], None, None)
    most, least = points[0]["risk"], points[-1]["risk"]
    places = [
        (
            LEFT + (RIGHT - LEFT) * (log(most / price["risk"]) / log(most / least) if most > least else 0.5),
            BOTTOM - (BOTTOM - TOP) * axis.place(price["resourceCost"]),
        )
        for price in points
    ]
    path = "".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}h0" for at, (x, y) in enumerate(places))
    costs = [money(price["resourceCost"]) for price in points]
    words = [f"{100 * price['risk']:g} %" for price in points]
    unit = f"{currency} an hour" if currency else "an hour"
    steps = ", ".join(f"{cost} at {risk}" for cost, risk in zip(costs, words, strict=True))
    return ChartDrawing(
        id="risk", title="Cost by risk", unit=unit, note="", sentence=f"GPUs cost by risk, {unit}: {steps}.",
        is_empty=False, is_stacked=False,
        value_ticks=tuple(
            (round(BOTTOM - (BOTTOM - TOP) * axis.place(tick), 1), axis.label(tick)) for tick in axis.ticks
        ),
        time_ticks=tuple((round(x, 1), text) for (x, _), text in zip(places, words, strict=True)),
        paths=(("line t0", path),),
        legend=(LegendLine("t0", "GPUs", f"{costs[0]} at {words[0]} to {costs[-1]} at {words[-1]} of hours"),),
    )  # fmt: skip
