"""The order in which rentals are tried: up until one is kept, then down until every GPU less has failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from simulation.sizing.moments import LoadMoment, highest_moments
from simulation.sizing.planned import RentalPlanner
from simulation.sizing.rental import Rental, RentalMarket
from simulation.sizing.search import RentalSearch, figures_of
from simulation.sizing.trial import RentalTrial, SimulatedService, TryRental
from tests.simulation.sizing.worlds import curves, world

LOAD = "0,shop/a,260\n0,shop/b,200\n"  # of which plans say that two small GPUs carry it


def outcome(shed: Callable[[Rental], int], share: Callable[[Rental], float] = lambda rental: 1.0) -> TryRental:
    """A simulation whose figures follow from the rental."""

    def try_rental(rental: Rental) -> RentalTrial:
        service = SimulatedService(share(rental), share(rental), 0.98)
        return RentalTrial(rental, float(rental.gpus), {"shop/a": service}, 1000, 0, shed(rental))

    return try_rental


class RememberingPlanner(RentalPlanner):
    """A planner that finds the rental for each factor once: all searches here ask about the same load."""

    def __init__(self, market: RentalMarket, moments: Sequence[LoadMoment], work: int, seed: int) -> None:
        super().__init__(market, moments, work, seed)
        self._rentals: dict[float, Rental] = {}

    def cheapest(self, factor: float = 1.0) -> Rental:
        if factor not in self._rentals:
            self._rentals[factor] = super().cheapest(factor)
        return self._rentals[factor]


@cache
def planned(small: int) -> tuple[RentalPlanner, RentalMarket]:
    market = RentalMarket.of(world(small=small, big=0))
    moments = highest_moments(curves(LOAD), {"shop/a": 5.0, "shop/b": 7.0}, market.worth())
    return RememberingPlanner(market, moments, 1, 0), market


def search(try_rental: TryRental, small: int = 6, simulations: int = 20) -> RentalSearch:
    planner, market = planned(small)
    found = RentalSearch(planner, market, try_rental, simulations, lambda line: None)
    found.run()
    return found


def tried(found: RentalSearch) -> list[int]:
    return [rental.gpus for rental in found.trials]


@pytest.mark.slow
def test_the_plans_rental_is_the_answer_where_it_is_kept_and_one_less_is_not() -> None:
    found = search(outcome(lambda rental: 0 if rental.gpus >= 2 else 50))
    assert tried(found) == [2, 1]
    assert found.best and found.best.rental.by_type == {"small": 2}
    assert found.one_less_fails


@pytest.mark.slow
def test_a_rental_that_fails_grows_until_one_is_kept() -> None:
    found = search(outcome(lambda rental: max(0, 3 - rental.gpus) * 100))
    assert tried(found) == [2, 3]
    assert found.best and found.best.rental.gpus == 3
    assert found.one_less_fails


@pytest.mark.slow
def test_a_missed_slo_refuses_as_turned_away_requests_do() -> None:
    found = search(outcome(lambda rental: 0, lambda rental: 0.99 if rental.gpus >= 3 else 0.9))
    assert found.best and found.best.rental.gpus == 3
    figures = figures_of(found)
    assert [trial["kept"] for trial in figures["tried"]] == [False, True]
    assert "shop/a kept its SLO for 90.00 % and not 98 %" in figures["tried"][0]["why"]


@pytest.mark.slow
def test_what_plans_refuse_is_not_simulated() -> None:
    found = search(outcome(lambda rental: 0))
    assert found.best and found.best.rental.gpus == 2
    first, less = figures_of(found)["tried"]
    assert (first["simulated"], less["simulated"]) == (True, False)
    assert less["why"] == "no right plan carries it: by proof the rates at second 0 take GPUs for at least 2 an hour"


@pytest.mark.slow
def test_requests_that_larger_rentals_turn_away_too_do_not_refuse() -> None:
    found = search(outcome(lambda rental: 100 if rental.gpus >= 2 else 500))
    assert found.best and found.best.rental.gpus == 2
    assert found.one_less_fails
    figures = figures_of(found)
    assert (figures["shedAnyway"], figures["confirmedBySimulation"]) == (105, True)
    assert [trial["kept"] for trial in figures["tried"]] == [True, True, True, False]


@pytest.mark.slow
def test_where_larger_rentals_miss_an_slo_in_the_same_way_the_search_ends_without_an_answer() -> None:
    found = search(outcome(lambda rental: 0, lambda rental: 0.5))
    assert len(found.trials) == 3
    figures = figures_of(found)
    assert (figures["confirmedBySimulation"], figures["moreHelps"]) == (False, False)


@pytest.mark.slow
def test_no_more_simulations_are_run_than_ordered() -> None:
    found = search(outcome(lambda rental: max(0, 6 - rental.gpus) * 100), simulations=2)
    assert len(found.trials) == 2
    assert found.best is None
    assert search(outcome(lambda rental: 0), simulations=1).best


@pytest.mark.slow
def test_where_nothing_more_can_be_rented_the_nearest_is_shown() -> None:
    found = search(outcome(lambda rental: 1000 - 100 * rental.gpus), small=3)
    assert tried(found) == [2, 3]
    figures = figures_of(found)
    assert (figures["gpus"], figures["confirmedBySimulation"]) == ({"small": 3}, False)
