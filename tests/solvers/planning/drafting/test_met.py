"""Patterns that the search for the bound meets become columns that keep every promise, at what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.families import family
from solvers.planning.drafting.drafts import prepare
from solvers.planning.drafting.met import met_columns
from solvers.planning.drafting.restricted import PatternChoice
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances, placed_instances
from solvers.planning.search.tables import tables
from solvers.planning.search.workshop import Workshop
from tests.solvers.planning.random_problems import random_problem

WORK = 100_000


@pytest.mark.slow
def test_the_bounds_patterns_are_right_columns() -> None:
    checked = 0
    for seed in range(12):
        problem = replace(random_problem(seed), jobs={}, state=None)
        shop = prepare(tables(problem))
        columns = met_columns(shop, WORK)
        assert not len(shop.used)
        for column in columns:
            if shop.place(column):  # its node may have too few cores
                assert shop.costs(shop.used)[0].sum() == pytest.approx(column.cost)
                checked += check_alone(problem, shop, len(column.offers))
                shop.clear_all()
    assert checked > 100


def check_alone(problem: Problem, shop: Workshop, count: int) -> bool:
    """Checks that these residents break no rule; tells if all of them may run without other instances elsewhere."""
    shop.board.cap[:] *= 1 - 1e-6  # the last digits of a rate are rounded in different ways
    placed, unserved = instances(shop.t, placed_instances(shop))
    if len(placed) < count:
        return False
    verdict = judge(problem, Plan(tuple(placed), unserved=tuple(unserved)), simulate=False, keeps=keep)
    assert [v for v in verdict.violations if v.where != "fleet" and v.where not in problem.limits] == []
    return True


@pytest.mark.slow
def test_a_fresh_choice_among_the_bounds_patterns_serves_everything_at_no_more_than_its_first_plan() -> None:
    shop = prepare(tables(family("A", 16, 8, 0)))
    dearest = [column for column in met_columns(shop, WORK) if len(column.offers) == 1]
    choice = PatternChoice(shop, 0)
    choice.note(met_columns(shop, WORK))

    fresh = choice.choose(dearest, sum(column.cost for column in dearest), is_fresh=True)

    carried = np.zeros(len(shop.t.services))
    for column in fresh.columns:
        np.add.at(carried, shop.t.offer_service[column.offers], column.caps)
    assert (carried >= shop.t.rate * (1 - 1e-6)).all()
    assert sum(column.cost for column in fresh.columns) < sum(column.cost for column in dearest)


@pytest.mark.slow
def test_the_same_work_meets_the_same_patterns() -> None:
    t = tables(family("A", 16, 8, 1))
    first, again = ([c.key for c in met_columns(prepare(t), WORK)] for _ in range(2))
    assert first and first == again
