"""Another risk plans with the margins that the scores give for it; nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from app.control.answer.whatif.change import WhatIfChange, apply_change
from app.control.answer.whatif.margins import compare_margins, describe_margins
from app.control.answer.whatif.question import WhatIf
from app.control.answer.whatif.risks import RISKS
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, Snapshot
from solvers.forecast import MarginScores
from tests.app.control.answer.whatif.worlds import snapshot

SEARCH, ADS = "shop/search", "shop/ads"
SCORES = MarginScores(20, ((5, 0.2), (10, 0.3), (11, 0.3)))  # .2 at a risk of .05, .3 at .01, 0 at .5
LEARNED = ExpectedLoad(
    130.0, reason="held", margin=0.2, risk=0.05, scores=SCORES, bare_per_second=110.0, sure_per_second=105.0
)


@pytest.fixture
def world() -> Snapshot:
    known = snapshot(search=100.0, ads=100.0)
    return replace(known, expected={SEARCH: LEARNED, ADS: ExpectedLoad(100.0, risk=0.05)})


def policy(**spec: Any) -> DeclaredObject:
    return DeclaredObject("Policy", "", "default", spec)


def test_a_plan_differs_by_what_the_margin_adds_to_the_load_that_is_surely_there() -> None:
    assert LEARNED.plan_at_risk(0.5).rate_per_second == pytest.approx(130.0 - (105.0 * 1.2 - 110.0))
    assert LEARNED.plan_at_risk(0.01).rate_per_second == pytest.approx(130.0 + 105.0 * 0.1)


def test_a_rate_that_has_not_fallen_since_it_rose_would_have_risen_to_another() -> None:
    risen = replace(LEARNED, risen_margin=0.2)
    assert risen.plan_at_risk(0.01).rate_per_second == pytest.approx(130.0 * 1.3 / 1.2)
    assert risen.plan_at_risk(0.5).rate_per_second == pytest.approx(110.0)  # what the highest minute of late needs
    assert risen.plan_at_risk(0.05).rate_per_second == 130.0


def test_the_policys_risk_is_that_of_all_services_but_those_with_their_own(world: Snapshot) -> None:
    after = apply_change(world, WhatIfChange(risk=0.01))
    assert after.expected[SEARCH].margin == 0.3
    assert after.expected[ADS].rate_per_second == 100.0
    own = apply_change(world, WhatIfChange(risks={SEARCH: 0.05}))
    assert apply_change(own, WhatIfChange(risk=0.01)).expected[SEARCH] == LEARNED


def test_a_manifest_that_states_another_risk_is_asked_about_alike(world: Snapshot) -> None:
    stated = apply_change(world, WhatIfChange(declared=(policy(risk=0.01),)))
    assert stated.expected == apply_change(world, WhatIfChange(risk=0.01)).expected
    assert apply_change(world, WhatIfChange(declared=(policy(risk=0.05),))).expected == world.expected


def test_the_rates_that_change_are_named_with_their_margins(world: Snapshot) -> None:
    found = compare_margins(world, apply_change(world, WhatIfChange(risk=0.01)))
    assert [line["service"] for line in found] == [SEARCH, ADS]
    assert describe_margins(found) == [
        "planned rates that change, a second: shop/search 130 -> 140.5 (margin 20 -> 30 %); "
        "margins are learned from 20 hours or fewer"
    ]
    assert describe_margins(compare_margins(world, world)) == []


@pytest.mark.slow
def test_prices_rise_as_the_risk_falls_and_equal_rates_cost_the_same(world: Snapshot) -> None:
    busy = replace(LEARNED, rate_per_second=520.0, bare_per_second=440.0, sure_per_second=420.0)
    known = replace(world, expected={**world.expected, SEARCH: busy})
    answer: Any = WhatIf(known, WhatIfChange(), 60.0, work=2, with_risks=True).answered()
    prices = answer["riskPrices"]
    assert [price["risk"] for price in prices] == list(RISKS)
    for smaller, larger in pairwise(prices):
        assert smaller["plannedPerSecond"] >= larger["plannedPerSecond"]
        assert smaller["resourceCost"] >= larger["resourceCost"] - 1e-9
    assert prices[0]["plannedPerSecond"] == pytest.approx(520.0 + 42.0 + 100.0)
    own = apply_change(known, WhatIfChange(risks={SEARCH: 0.05}))
    kept: Any = WhatIf(own, WhatIfChange(), 60.0, work=2, with_risks=True).answered()
    assert {price["plannedPerSecond"] for price in kept["riskPrices"]} == {620.0}
    assert len({price["resourceCost"] for price in kept["riskPrices"]}) == 1


@pytest.mark.slow
def test_a_smaller_risk_costs_no_less(world: Snapshot) -> None:
    busy = replace(LEARNED, rate_per_second=520.0, bare_per_second=440.0, sure_per_second=420.0)
    known = replace(world, expected={**world.expected, SEARCH: busy})
    answer: Any = WhatIf(known, WhatIfChange(risk=0.01), 60.0, work=2).answered()
    assert answer["costDelta"] >= 0
    changed = next(line for line in answer["services"] if line["service"] == SEARCH)
    assert changed["after"]["ratePerSecond"] == pytest.approx(520.0 + 42.0)
    assert answer["sentences"][-1].startswith("planned rates that change, a second: shop/search 520 -> 562")
