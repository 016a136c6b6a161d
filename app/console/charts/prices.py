"""Draws what promises cost: a fleet at each risk, a service at each percentile and latency, and goals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log

from app.console.charts.drawing import LEFT, RIGHT, ChartDrawing, LegendLine, draw_dots, draw_line, draw_ring, place_y
from app.console.charts.scales import ValueAxis, value_axis
from app.console.wording import money, number
from app.control.answer.whatif.wire import LatencyPriceWire, ObjectivePointWire, PercentilePriceWire, RiskPriceWire

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
    places = [(_place_x(across, ms), place_y(axis.place(cost))) for ms, cost in points]
    costs = [f"{money(cost)} at {number(ms)} ms" for ms, cost in points]
    legend = [LegendLine("t0", "GPUs of its SLO", " to ".join(dict.fromkeys((costs[0], costs[-1]))) + unserved)]
    served = next((at for at, (ms, _) in enumerate(points) if ms not in short), len(points))
    paths = [(f"line t0 {GUESS}", _draw_steps(places[: served + 1] if served else [])),
             ("line t0", _draw_steps(places[served:]))]  # fmt: skip
    for place, (ms, cost) in zip(places, points, strict=True):
        if ms == slo_ms:
            legend.append(LegendLine("ring", "promised now", f"{number(slo_ms)} ms for {money(cost)}"))
            paths.append(("ring", draw_ring(place)))
    return _make_drawing(
        "latency-price", "Cost by SLO", f"{unit}, by its milliseconds",
        f"GPUs of its SLO cost, {unit}: {', '.join(costs)}{unserved}. Promised now: {number(slo_ms)} ms.",
        axis, across, paths, legend,
    )  # fmt: skip


def draw_front(points: Sequence[ObjectivePointWire], currency: str = "") -> ChartDrawing:
    """Draws plans of which none is worse than another in everything: money over energy; there is at least one."""
    unit = f"{currency} an hour".strip()
    across = value_axis([point["energyKwh"] for point in points], None, None)
    axis = value_axis([point["moneyPerHour"] for point in points], None, None)
    ordered = sorted(points, key=lambda point: (point["energyKwh"], -point["moneyPerHour"]))
    places = [(_place_x(across, one["energyKwh"]), place_y(axis.place(one["moneyPerHour"]))) for one in ordered]
    named = [
        f"{money(point['moneyPerHour'])} with {number(point['energyKwh'])} kWh"
        + (f", best in {' and '.join(point['best'])}" if point["best"] else "")
        for point in ordered
    ]
    legend = [LegendLine("t0", "plans", str(len(ordered)))]
    return _make_drawing(
        "front", "Money against energy", f"{unit}, by kWh an hour",
        f"Plans of which none is worse than another in everything, {unit}: {'; '.join(named)}.",
        axis, across, [("line t0 guess", _draw_front_line(places)), ("points t0", draw_dots(places))], legend,
    )  # fmt: skip


def _place_x(axis: ValueAxis, value: float) -> float:
    return LEFT + (RIGHT - LEFT) * axis.place(value)


def _draw_steps(places: Sequence[tuple[float, float]]) -> str:
    """Returns the path that holds each height until the next place; a single one is a dot."""
    if not places:
        return ""
    return f"M{places[0][0]:.1f} {places[0][1]:.1f}h0" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in places[1:])


def _draw_front_line(places: Sequence[tuple[float, float]]) -> str:
    """Returns steps through the places that no other is left of and below; one more good may have places off it."""
    best = [place for at, place in enumerate(places) if all(other[1] < place[1] for other in places[:at])]
    return _draw_steps(best)


def _make_drawing(
    name: str, title: str, unit: str, sentence: str, axis: ValueAxis, across: ValueAxis,
    paths: Sequence[tuple[str, str]], legend: Sequence[LegendLine],
) -> ChartDrawing:  # fmt: skip
    return ChartDrawing(
        id=name, title=title, unit=unit, note="", sentence=sentence, is_empty=False, is_stacked=False,
        value_ticks=tuple((round(place_y(axis.place(tick)), 1), axis.label(tick)) for tick in axis.ticks),
        time_ticks=tuple((round(_place_x(across, tick), 1), across.label(tick)) for tick in across.ticks),
        paths=tuple(path for path in paths if path[1]), legend=tuple(legend),
    )  # fmt: skip


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
