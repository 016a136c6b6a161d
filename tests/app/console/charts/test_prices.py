"""The picture of prices by risk: the smaller risk to the right, by logarithms, and the same in words."""

from __future__ import annotations

from app.console.charts.drawing import LEFT, RIGHT
from app.console.charts.front import draw_front
from app.console.charts.prices import draw_latencies, draw_percentiles, draw_risks
from app.control.answer.whatif.wire import LatencyPriceWire, ObjectivePointWire, PercentilePriceWire, RiskPriceWire


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


def test_the_price_of_an_slo_falls_in_steps_and_the_promised_one_is_ringed() -> None:
    prices: list[LatencyPriceWire] = [
        {"sloMs": ms, "costsPerHour": {"gpus": gpus, "unserved": unserved}}
        for ms, gpus, unserved in ((50.0, 1.0, 90.0), (80.0, 4.0, 0.0), (100.0, 4.0, 0.0), (150.0, 3.0, 0.0))
    ]
    drawing = draw_latencies(prices, 100.0, "EUR")
    (dashed, first), (look, path), (ring, _) = drawing.paths
    assert (dashed, look, ring) == ("line t0 guess", "line t0", "ring")
    assert (first.count("H"), path.count("H")) == (1, 2), "what leaves requests unserved is dashed"
    assert [line.words for line in drawing.legend] == [
        "1.00 at 50 ms to 3.00 at 150 ms; requests stay unserved up to 50 ms", "100 ms for 4.00",
    ]  # fmt: skip
    assert "4.00 at 80 ms, 4.00 at 100 ms, 3.00 at 150 ms" in drawing.sentence
    (dashed, _), _ = draw_latencies(prices[:1], 50.0).paths
    assert dashed == "line t0 guess"


def test_plans_between_goals_are_dots_on_steps_that_only_rise_to_the_left() -> None:
    def plan(money: float, energy: float, best: list[str]) -> ObjectivePointWire:
        return {
            "best": best, "weights": {}, "moneyPerHour": money, "gpusPerHour": money, "energyKwh": energy,
            "carbonKg": None, "accuracy": 0.7, "gpus": 3, "unservedPerSecond": 0.0, "bound": None,
        }  # fmt: skip

    drawing = draw_front([plan(5.0, 2.0, ["money"]), plan(7.0, 2.5, ["accuracy"]), plan(6.0, 1.0, ["energy"])], "EUR")
    (line, steps), (dots, points) = drawing.paths
    assert (line, steps.count("H"), dots, points.count("M")) == ("line t0 guess", 1, "points t0", 3)
    assert "5.00 with 2 kWh, best in money" in drawing.sentence
