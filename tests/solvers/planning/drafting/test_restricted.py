"""Of all patterns found, the cheapest that serve everything are chosen; a plan from them is found again by its step."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.planning.drafting.drafts import drafts, prepare
from solvers.planning.drafting.restricted import PatternChoice
from solvers.planning.judge import judge
from solvers.planning.replay import replay_plan
from solvers.planning.search.tables import tables
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.search.test_local_search import filled, two_on_one_gpu


def test_patterns_of_fillings_empty_a_gpu_that_one_pattern_makes_superfluous() -> None:
    shop, _ = filled(two_on_one_gpu(206, 219))
    apart = [
        column.only(shop.t.offer_service[column.offers] == service)
        for column in shop.columns(shop.used)
        for service in (0, 1)
    ]
    choice = PatternChoice(shop, 0)
    choice.note(apart)
    choice.widen()

    chosen = choice.choose(apart, sum(column.cost for column in apart), is_fresh=False).columns

    assert len(apart) == 2 and len(chosen) == 1
    carried = np.bincount(shop.t.offer_service[chosen[0].offers], chosen[0].caps, minlength=2)
    assert (carried >= shop.t.rate * (1 - 1e-9)).all()


def test_what_is_known_is_chosen_where_nothing_is_cheaper() -> None:
    shop, _ = filled(two_on_one_gpu(206, 219))
    known = shop.columns(shop.used)
    choice = PatternChoice(shop, 0)
    choice.note(known)

    chosen = choice.choose(known, shop.cost, is_fresh=False).columns

    assert sum(column.cost for column in chosen) == pytest.approx(shop.cost)


@pytest.mark.slow
def test_a_plan_of_chosen_patterns_is_found_again_by_its_step() -> None:
    problem = random_problem(31)
    draft = next(draft for draft in drafts(prepare(tables(problem)), 0) if draft.method == "choice of patterns")

    again = replay_plan(problem, 0, draft.work, is_exact=False)

    assert again.certificate
    assert again.certificate.method.startswith("choice of patterns")
    assert again.certificate.cost.total <= draft.cost + 1e-6 * draft.cost
    assert judge(problem, again).is_right
