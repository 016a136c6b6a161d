"""Where a fleet is too small, the search leaves out what costs least to leave out."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.drafting.drafts import prepare
from solvers.planning.search import dive
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.tables import tables
from tests.solvers.planning.random_problems import random_problem


def test_what_a_fleet_cannot_serve_has_its_true_price_in_the_end() -> None:
    problem = random_problem(3)
    services = {name: replace(s, rate_per_second=s.rate_per_second * 50) for name, s in problem.services.items()}
    t = tables(replace(problem, services=services))
    shop = prepare(t)
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Dive(rate, extra)
    for _ in dive.generate(shop, course, 8, tells_shortage=True):
        pass
    assert (dive.penalties(shop, course) == t.unserved_price).all()
