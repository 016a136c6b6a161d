"""Draws what promises cost: a fleet at each risk, a service at each percentile and latency. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log

from app.console.charts.drawing import (
    ChartDrawing,
    LegendLine,
    draw_line,
    draw_ring,
    draw_steps,
    make_drawing,
    mark_values,
    place_x,
    place_y,
)
from app.console.charts.scales import value_axis
from app.console.wording import money, number
from app.control.answer.whatif.wire import LatencyPriceWire, PercentilePriceWire, RiskPriceWire

LEAST_PENALTY = 1e-6
GUESS = "guess"  # the look of a line to prices of promises that nothing measured


@dataclass(frozen=True, slots=True)
class PromisePrice:
    """What a promise costs an hour that leaves out this share, of hours or of requests."""

    share: float
    words: str
    cost: float
    is_measured: bool = True
    is_short: bool = False  # part of the requests stays unserved


def draw_risks(prices: Sequence[RiskPriceWire], currency: str = "") -> ChartDrawing:
    """Draws the prices of risks, of which there is at least one."""
    points = [
        PromisePrice(
            price["risk"], f"{100 * price['risk']:g} %", price["resourceCost"], is_short=price["unservedPerSecond"] > 0
        )
        for price in prices
    ]
    return _draw("risk", "Cost by risk", "GPUs of the fleet", points, currency)


def draw_percentiles(prices: Sequence[PercentilePriceWire], currency: str = "") -> ChartDrawing:
    """Draws the prices of percentiles, of which there is at least one; the line is dashed where none measured them."""
    points = [
        PromisePrice(
            1.0 - price["percentile"] / 100.0, f"p{price['percentile']:g}", price["costsPerHour"]["gpus"],
            price["isMeasured"], price["costsPerHour"]["unserved"] > LEAST_PENALTY,
        )
        for price in prices
    ]  # fmt: skip
    return _draw("percentile", "Cost by percentile", "GPUs of its SLO", points, currency)


def draw_latencies(prices: Sequence[LatencyPriceWire], slo_ms: float, currency: str = "") -> ChartDrawing:
    """Draws the prices of latencies, of which there is at least one, as steps down: each plan keeps longer ones, too.

    Steps are dashed where requests stay unserved, which have a penalty beside this price; the promised one is ringed.
    """
    points = [(price["sloMs"], price["costsPerHour"]["gpus"]) for price in prices]
    short = [price["sloMs"] for price in prices if price["costsPerHour"]["unserved"] > LEAST_PENALTY]
    unserved = f"; requests stay unserved up to {number(short[-1])} ms" if short else ""
    unit = f"{currency} an hour".strip()
    across = value_axis([ms for ms, _ in points], None, None)
    axis = value_axis([cost for _, cost in points], 0.0, None)
    places = [(place_x(across.place(ms)), place_y(axis.place(cost))) for ms, cost in points]
    costs = [f"{money(cost)} at {number(ms)} ms" for ms, cost in points]
    legend = [LegendLine("t0", "GPUs of its SLO", " to ".join(dict.fromkeys((costs[0], costs[-1]))) + unserved)]
    served = next((at for at, (ms, _) in enumerate(points) if ms not in short), len(points))
    paths = [(f"line t0 {GUESS}", draw_steps(places[: served + 1] if served else [])),
             ("line t0", draw_steps(places[served:]))]  # fmt: skip
    for place, (ms, cost) in zip(places, points, strict=True):
        if ms == slo_ms:
            legend.append(LegendLine("ring", "promised now", f"{number(slo_ms)} ms for {money(cost)}"))
            paths.append(("ring", draw_ring(place)))
    return make_drawing(
        "latency-price", "Cost by SLO", f"{unit}, by its milliseconds",
        f"GPUs of its SLO cost, {unit}: {', '.join(costs)}{unserved}. Promised now: {number(slo_ms)} ms.",
        axis, mark_values(across), paths, legend,
    )  # fmt: skip


def _draw(name: str, title: str, what: str, prices: Sequence[PromisePrice], currency: str) -> ChartDrawing:
    points = sorted(prices, key=lambda price: -price.share)
    axis = value_axis([price.cost for price in points], None, None)
    most, least = points[0].share, points[-1].share
    places = [
        (
            place_x(log(most / price.share) / log(most / least) if most > least else 0.5),
            place_y(axis.place(price.cost)),
        )
        for price in points
    ]
    known = len(list(takewhile(lambda price: price.is_measured, points)))
    paths = [("line t0", draw_line(places[:known])), (f"line t0 {GUESS}", draw_line(places[max(0, known - 1) :]))]
    costs = [money(price.cost) for price in points]
    unit = f"{currency} an hour" if currency else "an hour"
    steps = ", ".join(f"{cost} at {price.words}" for cost, price in zip(costs, points, strict=True))
    short = ", ".join(price.words for price in points if price.is_short)
    ends = f"{costs[0]} at {points[0].words} to {costs[-1]} at {points[-1].words}"
    unserved = f"; requests stay unserved at {short}" if short else ""
    ticks = tuple((round(x, 1), price.words) for (x, _), price in zip(places, points, strict=True))
    return make_drawing(
        name, title, unit, f"{what} cost, {unit}: {steps}{unserved}.", axis, ticks,
        paths[: 1 if known == len(points) else 2], [LegendLine("t0", what, ends + unserved)],
    )  # fmt: skip
