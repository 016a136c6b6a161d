"""Where the money of an hour goes: the parts add up to what is held, planned and proved."""

from __future__ import annotations

from typing import Any

from app.console.charts.spending import SpendingFigure, draw_spending

CERTIFICATE: Any = {"resourceCost": 10.0, "unservedCost": 3.0, "bound": 11.0, "programme": 12.0}


def service(price: float | None, idle: float = 0.0, rate: float | None = 50.0) -> Any:
    return {"pricePerHour": price, "idlePerHour": idle, "ratePerSecond": rate, "plannedPerSecond": 100.0}


def parts(figure: SpendingFigure | None) -> dict[str, dict[str, float]]:
    assert figure
    return {column.name: {part.name: round(part.per_hour, 9) for part in column.parts} for column in figure.columns}


def test_the_parts_are_hand_overs_headroom_idle_parts_and_what_whole_numbers_cost() -> None:
    figure = draw_spending([service(6.0, 2.0), service(4.0, rate=None)], 13.0, CERTIFICATE, 7, "EUR")
    planned = {"Current requests": 6.0, "Headroom": 2.0, "Idle parts": 2.0}
    assert parts(figure) == {
        "Held now": planned | {"Hand-overs": 3.0},
        "Planned": planned,
        "Against the bound": {"Least possible": 8.0, "Unproved gap": 1.0, "Whole copies and GPUs": 1.0},
    }
    assert figure and figure.drawing.sentence.startswith("Held now 13.00: Current requests 6.00, Headroom 2.00")
    assert {part.href for column in figure.columns for part in column.parts} >= {"/services?sort=cost", "/plans/7#how"}


def test_while_copies_still_start_as_much_of_the_plan_is_held_as_is_there() -> None:
    held = parts(draw_spending([service(10.0)], 5.0, CERTIFICATE, 7, ""))["Held now"]
    assert held == {"Current requests": 2.5, "Headroom": 2.5, "Idle parts": 0.0, "Hand-overs": 0.0}


def test_without_a_bound_none_is_drawn_and_without_prices_nothing_is() -> None:
    assert set(parts(draw_spending([service(10.0)], None, None, 7, ""))) == {"Planned"}
    hidden = CERTIFICATE | {"bound": 2.0}  # below the penalty
    assert set(parts(draw_spending([service(10.0)], None, hidden, 7, ""))) == {"Planned"}
    assert draw_spending([service(None)], 5.0, CERTIFICATE, 7, "") is None
