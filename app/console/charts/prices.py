"""Draws what a promise costs: a fleet at each risk, a service at each percentile; the strictest is right. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log

from app.console.charts.drawing import LEFT, RIGHT, ChartDrawing, LegendLine, draw_line, place_y
from app.console.charts.scales import value_axis
from app.console.wording import money
from app.control.answer.whatif.wire import PercentilePriceWire, RiskPriceWire

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


def _draw(name: str, title: str, what: str, prices: Sequence[PromisePrice], currency: str) -> ChartDrawing:
    points = sorted(prices, key=lambda price: -price.share)
    axis = value_axis([price.cost for price in points], None, None)
    most, least = points[0].share, points[-1].share
    places = [
        (
            LEFT + (RIGHT - LEFT) * (log(most / price.share) / log(most / least) if most > least else 0.5),
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
    return ChartDrawing(
        id=name, title=title, unit=unit, note="", sentence=f"{what} cost, {unit}: {steps}{unserved}.",
        is_empty=False, is_stacked=False,
        value_ticks=tuple(
            (round(place_y(axis.place(tick)), 1), axis.label(tick)) for tick in axis.ticks
        ),
        time_ticks=tuple((round(x, 1), price.words) for (x, _), price in zip(places, points, strict=True)),
        paths=tuple(path for path in paths[: 1 if known == len(points) else 2] if path[1]),
        legend=(LegendLine("t0", what, ends + unserved),),
    )  # fmt: skip
