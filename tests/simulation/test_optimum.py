"""The cheapest way through a day is found by enumeration, and checked by hand where hands suffice."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest

from tests.simulation.optimum import Day, ServiceShape, churn_between, optimum

HALF = ServiceShape(50, 100)
THIRD = ServiceShape(30, 100)


def day(rates: list[tuple[float, float]], gpus: int = 2, move_price: float = 0.1, step_hours: float = 1.0) -> Day:
    rates_by_hour = [dict(zip("ab", both, strict=True)) for both in rates]
    return Day(gpus, 1.0, move_price, step_hours, {"a": HALF, "b": THIRD}, rates_by_hour)


def test_a_steady_day_has_one_plan_and_no_churn() -> None:
    found = optimum(day([(80, 80)] * 5))
    assert found.churn == 0
    assert found.cost == 5
    assert len(set(found.plans)) == 1


def test_a_second_instance_comes_and_goes_where_that_pays() -> None:
    found = optimum(day([(80, 80), (150, 80), (80, 80)]))
    assert found.cost == 1 + 2 + 1
    assert found.churn == pytest.approx(0.1 * 0.5)  # one start of 50 SM%; a stop is free


def test_what_costs_more_to_move_than_to_keep_stays() -> None:
    found = optimum(day([(80, 80), (150, 80), (80, 80), (150, 80)], move_price=10, step_hours=0.1))
    assert found.churn == 0
    assert found.cost == pytest.approx(4 * 2 * 0.1)


def test_equal_gpus_pair_up_as_it_is_cheapest() -> None:
    single_day = day([(80, 80)])
    a, b = frozenset("a"), frozenset("b")
    assert churn_between(single_day, (a, b), (b, a)) == 0
    assert churn_between(single_day, (a, frozenset()), (a, b)) == pytest.approx(0.1 * 0.3)


def test_where_shares_are_paid_for_even_room_on_a_used_gpu_is_given_back() -> None:
    shared = replace(day([(80, 80), (150, 80), (80, 80)]), by_share=True)
    found = optimum(shared)
    assert found.cost == pytest.approx(0.8 + 1.3 + 0.8)
    assert found.churn == pytest.approx(0.1 * 0.5)


@pytest.mark.slow
def test_no_other_course_is_cheaper() -> None:
    small = day([(80, 80), (150, 80), (80, 150), (40, 40)], move_price=0.4)
    found = optimum(small)
    subsets = [frozenset(some) for some in ("", "a", "b", "ab")]
    best = float("inf")
    for course in product(list(product(subsets, repeat=2)), repeat=4):
        cost = 0.0
        for step, layout in enumerate(course):
            served = all(sum(name in gpu for gpu in layout) * 100 >= small.rates[step][name] for name in "ab")
            cost += sum(map(bool, layout)) if served else 1e9
        if cost < best:
            best = min(best, cost + sum(churn_between(small, *pair) for pair in pairwise(course)))
    assert found.cost + found.churn == pytest.approx(best)


def test_a_day_that_cannot_be_served_is_reported() -> None:
    with pytest.raises(ValueError, match="cannot serve every step"):
        optimum(day([(300, 80)]))
