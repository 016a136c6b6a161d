"""The cheapest rental by plans alone, against every rental there is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from app.control.formulate.problem import build_problem
from simulation.sizing.moments import highest_moments
from simulation.sizing.planned import LoadTooLarge, RentalPlanner
from simulation.sizing.rental import RentalMarket
from solvers.planning.judge import judge
from solvers.planning.solve import SolveBudget, find
from tests.simulation.sizing.worlds import curves, fleet_of, world

pytestmark = pytest.mark.slow

WORK = 2
ROWS = "0,shop/a,500\n60,shop/a,500\n90,shop/a,40\n300,shop/a,40\n0,shop/b,40\n150,shop/b,40\n200,shop/b,500\n"
PRICES = {"small": 1.0, "big": 2.5}


def planner(rows: str, **given: int) -> tuple[RentalPlanner, RentalMarket]:
    market = RentalMarket.of(world(**given))
    moments = highest_moments(curves(rows), {"shop/a": 5.0, "shop/b": 7.0}, market.worth())
    return RentalPlanner(market, moments, WORK, 0), market


def carries(counts: dict[str, int], seconds: Iterable[int], owned: int = 0) -> bool:
    """Asks the planner for a plan of each of these seconds, and the referee whether it is right."""
    found = curves(ROWS)
    for second in seconds:
        rates = {name: curve.at(second) for name, curve in found.items()}
        problem = build_problem(fleet_of(counts, rates, owned))
        plan = find(problem, SolveBudget(None, 40), alone=True).plan
        if plan.unserved or not judge(problem, plan).is_right:
            return False
    return True


def test_the_rental_carries_every_moment_and_no_cheaper_one_does() -> None:
    asked, market = planner(ROWS, small=3, big=2)
    best = asked.cheapest()
    price = market.price(best)
    assert asked.uncarried(best) is None
    assert carries(best.by_type, range(0, 301, 50))
    assert 0 < asked.bound_per_hour <= price * (1 + 1e-6)
    for small, big in product(range(4), range(3)):
        counts = {"small": small, "big": big}
        if 0 < PRICES["small"] * small + PRICES["big"] * big < price - 1e-9:
            assert not carries(counts, (0, 240)), counts


def test_two_peaks_at_different_times_need_less_than_both_at_once() -> None:
    apart, market = planner(ROWS, small=8)
    together, _ = planner("0,shop/a,500\n300,shop/a,500\n0,shop/b,500\n", small=8)
    assert market.price(apart.cheapest()) < market.price(together.cheapest())


def test_declared_nodes_are_there_already() -> None:
    asked, market = planner(ROWS, small=3, big=2)
    beside, _ = planner(ROWS, small=3, big=2, owned=1)
    assert market.price(beside.cheapest()) < market.price(asked.cheapest())
    enough, _ = planner(ROWS, small=3, big=2, owned=3)
    assert enough.cheapest().counts == ()


def test_declared_nodes_that_cost_more_than_the_rental_raise_no_bound() -> None:
    beside, market = planner("0,shop/a,1500\n0,shop/b,1\n", small=8, big=0, owned=4)
    best = beside.cheapest()
    assert (market.price(best), beside.uncarried(best)) == (2.0, None)
    assert beside.bound_per_hour == pytest.approx(2.0)


def test_a_load_that_no_rental_carries_names_the_service_and_what_is_missing() -> None:
    asked, _ = planner("0,shop/a,20\n0,shop/b,9000\n", small=2, big=1)
    with pytest.raises(LoadTooLarge, match="requests/s of shop/b unserved") as refused:
        asked.cheapest()
    lacking = next(entry for entry in refused.value.moment.unserved if entry.service == "shop/b")
    assert 7000 < lacking.rate_per_second < 9000
    assert lacking.reason
