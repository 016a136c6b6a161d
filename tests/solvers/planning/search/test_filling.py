"""Boards are valid at every moment, the LP's prices are those of its columns, and dives meet the need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.families import family
from solvers.planning.drafting.drafts import drafts, prepare
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.search import dive
from solvers.planning.search.master import PatternMaster
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances, placed_instances, prune
from solvers.planning.search.tables import tables
from solvers.planning.search.workshop import Workshop
from tests.solvers.planning.random_problems import random_problem


def priced(shop: Workshop) -> dive.Dive:
    return dive.Dive(*resource_prices(shop.t, shop.pools, shop.counts, shop.tabled))


def spacious(seed: int) -> Workshop:
    """A fleet with room: everything can be served."""
    problem = family("G30", 24, 8, seed)
    return prepare(tables(problem))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_filling_puts_on_a_board_is_right_by_the_judge(seed: int) -> None:
    problem = replace(random_problem(seed), jobs={}, state=None)
    shop = prepare(tables(problem))
    shop.fill(priced(shop).rate, shop.t.rate.copy())
    placed, unserved = instances(shop.t, placed_instances(shop))
    verdict = judge(problem, Plan(tuple(placed), unserved=tuple(unserved)), simulate=False, keeps=keep)
    # The budget of watts and tenants' limits are kept when a draft is made of the board.
    assert [v for v in verdict.violations if v.where != "fleet" and v.where not in problem.limits] == []


def test_a_filling_meets_every_need_or_uses_every_gpu() -> None:
    shop = spacious(0)
    need = shop.t.rate.copy()
    used = shop.fill(priced(shop).rate, need)
    assert not need.any() and not shop.need.any()
    assert sorted(used.tolist()) == shop.used.tolist()


def test_taking_gpus_apart_and_back_leaves_the_board_as_it_was() -> None:
    shop = spacious(1)
    shop.fill(priced(shop).rate, shop.t.rate.copy())
    cover, cpu, used = shop.board.cover.copy(), shop.board.cpu.copy(), shop.used
    columns = shop.columns(used)
    shop.clear(used.tolist())
    assert shop.need == pytest.approx(shop.t.rate)
    for gpu, column in zip(used.tolist(), columns, strict=True):
        shop.seat(gpu, column)
    assert shop.board.cover == pytest.approx(cover) and shop.board.cpu == pytest.approx(cpu)


def test_no_column_of_the_lp_is_worth_more_than_it_costs() -> None:
    shop = spacious(2)
    course = priced(shop)
    master = PatternMaster(shop.t.rate, dive.penalties(shop, course), shop.counts, np.inf, shop.w.offer_service)
    master.add(shop.columns(shop.fill(course.rate, shop.t.rate.copy())))
    prices = master.solve()
    for column in master.columns:
        worth = float((prices.rate[shop.w.offer_service[column.offers]] * column.caps).sum())
        assert worth <= column.cost + prices.extra[column.pool] + 1e-6
    bought = float(prices.weight @ np.array([column.cost for column in master.columns]))
    missed = float(prices.missing @ (dive.penalties(shop, course) * shop.t.rate))
    assert prices.cost == pytest.approx(bought + missed)


def test_a_column_that_is_known_is_not_added_twice() -> None:
    shop = spacious(2)
    course = priced(shop)
    master = PatternMaster(shop.t.rate, dive.penalties(shop, course), shop.counts, np.inf, shop.w.offer_service)
    columns = shop.columns(shop.fill(course.rate, shop.t.rate.copy()))
    first = master.add(columns)
    assert 0 < first <= len(columns) and master.add(columns) == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_dive_meets_every_need_and_costs_no_less_than_its_lp(seed: int) -> None:
    shop = spacious(seed)
    course = priced(shop)
    latest = [prices for prices in dive.generate(shop, course, 6) if prices is not None][-1]
    columns = dive.columns_of(course)
    weights = latest._replace(weight=latest.weight[latest.weight > dive.LEAST_WEIGHT])
    assert [*dive.dive(shop, course, weights, columns, dive.SHALLOW)][-1] == 0
    assert not shop.need.any()
    assert shop.cost >= latest.cost * (1 - 1e-9)


def test_a_gpu_that_nobody_needs_is_given_back() -> None:
    shop = spacious(0)
    course = priced(shop)
    shop.fill(course.rate, shop.t.rate.copy())
    prune(shop)
    before = shop.cost
    assert any(shop.place(column) for column in shop.columns(shop.used))
    assert shop.cost > before
    prune(shop)
    assert shop.cost <= before * (1 + 1e-12) and not shop.need.any()


@pytest.mark.slow
def test_drafts_only_become_cheaper_and_the_same_seed_gives_the_same() -> None:
    def first(count: int) -> list[float]:
        found: list[float] = []
        for draft in drafts(spacious(3), seed=5):
            if draft.method:
                found.append(draft.cost)
            if draft.work > count:
                return found
        raise AssertionError("drafts do not end by themselves")

    costs = first(40)
    assert costs == sorted(costs, reverse=True) and costs == first(40)


@pytest.mark.parametrize("seed", range(10))
def test_a_walk_saves_what_it_says_and_what_it_leaves_is_right(seed: int) -> None:
    problem = replace(random_problem(seed), jobs={}, state=None)
    shop = prepare(tables(problem))
    course = priced(shop)
    shop.fill(course.rate, shop.t.rate.copy())
    before = shop.cost
    for step in (10, 4, 2):
        shop.look_at(step)
        saved = shop.improve(course.rate, course.extra, seed, 100, 0.02)
        assert shop.cost == pytest.approx(before - saved, rel=1e-6, abs=1e-6)
        before = shop.cost
    placed, unserved = instances(shop.t, placed_instances(shop))
    verdict = judge(problem, Plan(tuple(placed), unserved=tuple(unserved)), simulate=False, keeps=keep)
    assert [v for v in verdict.violations if v.where != "fleet" and v.where not in problem.limits] == []


@pytest.mark.slow
def test_a_walk_serves_whom_a_filling_left_out() -> None:
    shop = prepare(tables(family("A", 100, 50, 0)))
    course = priced(shop)
    shop.fill(course.rate, shop.t.rate.copy())
    before = int((shop.need > 0).sum())
    shop.improve(course.rate, course.extra, 1, 3000, 0.02)
    assert int((shop.need > 0).sum()) < before
