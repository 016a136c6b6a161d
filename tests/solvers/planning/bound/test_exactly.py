"""The worth of a GPU is that of its best residents: none of a coarse grid are worth more, some are worth as much."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from solvers.planning.bound.fleet import BoundFleet, fleet
from solvers.planning.bound.market import MOST_STEPS, Market, MarketLook, RealPattern, best_alone
from solvers.planning.fleet.grids import Floats
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from tests.solvers.planning.bound.test_tiny_plans import tiny
from tests.solvers.planning.bound.tiny_plans import carried_together, fillings
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

STEP = scaled(1, 12)
SLACK_SHARE = 1e-4  # of what residents earn: rates count a little less in the bound


def without_energy(problem: Problem, pricing: Literal["gpu", "share"]) -> Problem:
    policy = replace(problem.policy, pricing=pricing, energy_price_per_kwh=0.0)
    return replace(problem, policy=policy)


def look_at(f: BoundFleet, m: Market, prices: Floats, most: int) -> tuple[float, list[RealPattern]]:
    look = MarketLook(f.accepted, m, prices, f.priced_steps(prices), f.scratch, 0.0)
    look.search_exactly(most)
    return look.worth, look.patterns


def worth_of(f: BoundFleet, m: Market, prices: Floats, p: RealPattern) -> float:
    return float(prices[f.tables.offer_service[p.offers]] @ p.rates) - m.share_price * p.used_share


@pytest.mark.parametrize("pricing", ["gpu", "share"])
@pytest.mark.parametrize("number", range(0, 240, STEP))
def test_no_residents_are_worth_more_and_some_are_worth_as_much(number: int, pricing: Literal["gpu", "share"]) -> None:
    problem = without_energy(tiny(number), pricing)
    t, rng = tables(problem), np.random.default_rng(number)
    f = fleet(t)
    prices = f.limited(rng.exponential(1.0, len(t.rate)) * f.fixed.max(initial=1.0) / t.rate)
    price_of = dict(zip(t.services, prices.tolist(), strict=True))
    services = [problem.services[name] for name in sorted(problem.services)]
    in_order = np.array([price_of[name] for name in sorted(problem.services)])
    for m in f.markets:
        worth, patterns = look_at(f, m, prices, MOST_STEPS)
        kind = t.site_types[m.site].name
        for node in problem.nodes.values():
            if node.gpu_type == kind:
                grid = fillings(problem, services, node)
                shares = {served: cost if pricing == "share" else 0.0 for served, cost in grid.items()}
                best = max((in_order @ served[: len(services)] - cost for served, cost in shares.items()), default=0.0)
                assert best - SLACK_SHARE * (best + node.price_per_hour) <= worth
        if worth > max(best_alone(m, prices, f.priced_steps(prices))[0], 0.0):
            top = max(patterns, key=lambda p: worth_of(f, m, prices, p))
            assert worth_of(f, m, prices, top) == pytest.approx(worth, rel=1e-6)
            if pricing == "gpu":  # of shares, the bound leaves idle SMs times neighbours' pressure out
                assert_that_it_is_real(problem, f, m, top)


def assert_that_it_is_real(problem: Problem, f: BoundFleet, m: Market, p: RealPattern) -> None:
    """Compares the rates of a pattern with those of plain code."""
    t = f.tables
    assert p.sms.sum() <= 100
    kind, residents = t.site_types[m.site].name, []
    for offer, sm in zip(p.offers, p.sms, strict=True):
        service = problem.services[t.services[t.offer_service[offer]]]
        key = t.profiles[int(t.offer_profile[offer])]
        assert key[-1] == kind
        residents.append((service, problem.profiles[key], int(sm)))
    for (rate, _), counted in zip(carried_together(problem, residents), p.rates, strict=True):
        assert counted <= rate * (1 + 1e-6)


def test_a_small_number_of_steps_halves_classes_and_proves_no_less() -> None:
    f = fleet(tables(without_energy(tiny(14), "gpu")))
    prices = f.limited(np.full(len(f.need), 2.0) * f.fixed.max() / f.need)
    for m in f.markets:
        exact, _ = look_at(f, m, prices, MOST_STEPS)
        few, _ = look_at(f, m, prices, 20)
        assert exact * (1 - 1e-9) <= few <= 1.1 * exact
