"""The picture of prices by risk: the smaller risk to the right, by logarithms, and the same in words."""

from __future__ import annotations

from app.console.charts.drawing import LEFT, RIGHT
from app.console.charts.prices import draw_percentiles, draw_risks
from app.control.answer.whatif.wire import PercentilePriceWire, RiskPriceWire


def price(risk: float, cost: float) -> RiskPriceWire:
    return {"risk": risk, "resourceCost": cost, "plannedPerSecond": 100.0, "unservedPerSecond": 0.0}


def test_prices_are_drawn_from_the_largest_risk_to_the_smallest() -> None:
    drawing = draw_risks([price(0.01, 12.0), price(0.1, 11.0), price(1e-4, 14.5)], "EUR")
    assert drawing.time_ticks == ((LEFT, "10 %"), (round(LEFT + (RIGHT - LEFT) / 3, 1), "1 %"), (RIGHT, "0.01 %"))
    assert drawing.sentence == "GPUs of the fleet cost, EUR an hour: 11.00 at 10 %, 12.00 at 1 %, 14.50 at 0.01 %."
    ((look, path),) = drawing.paths
    assert look == "line t0" and path.startswith(f"M{LEFT} ")
    heights = [float(part.split()[1].removesuffix("h0")) for part in path[1:].split("L")]
    assert heights == sorted(heights, reverse=True)


def test_percentiles_that_nothing_measured_are_dashed() -> None:
    prices: list[PercentilePriceWire] = [
        {"percentile": percentile, "costsPerHour": {"gpus": 1.0 + at, "unserved": 5.0 * (at > 2)}, "isMeasured": at < 2}
        for at, percentile in enumerate((90.0, 95.0, 99.0, 99.9))
    ]
    drawing = draw_percentiles(prices)
    assert drawing.legend[0].words == "1.00 at p90 to 4.00 at p99.9; requests stay unserved at p99.9"
    assert [words for _, words in drawing.time_ticks] == ["p90", "p95", "p99", "p99.9"]
    (look, path), (dashed, rest) = drawing.paths
    assert (look, dashed) == ("line t0", "line t0 guess")
    assert (path.count("h0"), rest.count("h0")) == (2, 3)  # the dashed line begins where the other ends
    assert [look for look, _ in draw_percentiles(prices[:2]).paths] == ["line t0"]
    assert [look for look, _ in draw_percentiles(prices[2:]).paths] == ["line t0 guess"]


def test_a_single_price_is_a_dot() -> None:
    drawing = draw_risks([price(0.05, 12.0)])
    assert drawing.time_ticks == (((LEFT + RIGHT) / 2, "5 %"),)
