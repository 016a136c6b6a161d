"""A search from what runs is never dearer than what runs or its repair, and counts churn as the judge does."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.altered import move_rates
from benchmarks.families import family
from solvers.planning.drafting.drafts import prepare
from solvers.planning.finish import finish_services
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, ServicePlan, list_unserved
from solvers.planning.problem import Problem, RunningState
from solvers.planning.replan.effort import change_price
from solvers.planning.replan.match import match_running
from solvers.planning.replan.running import repair_running
from solvers.planning.replan.search import search, seat_all
from solvers.planning.replay import replay_plan
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find, solve
from tests.solvers.planning.small_fleets import fleets
from tests.solvers.planning.without_bound import plan_without_bound
from tests.support.soak import SOAK

checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
quick = settings(max_examples=200 if SOAK else 5, deadline=None, suppress_health_check=checks)


def value(problem: Problem, plan: Plan) -> float:
    verdict = judge(problem, plan, simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    hours = problem.policy.horizon_minutes / 60
    return verdict.cost.total * hours + verdict.cost.churn


@pytest.fixture(scope="module")
def moved() -> Problem:
    """A fleet whose rates have all moved beside its plan."""
    problem = family("A", 24, 12, seed=3, load=0.6)
    plan = plan_without_bound(problem, 20)
    return replace(move_rates(problem, 1), state=RunningState(None, plan.instances))


@pytest.mark.slow
@quick
@given(fleets(), st.integers(0, 99), st.sampled_from((3.0, 60.0, 600.0)))
def test_what_is_found_costs_no_more_than_what_runs_or_its_repair(fleet: Problem, seed: int, minutes: float) -> None:
    running = solve(fleet, SolveBudget(None, 0)).instances
    assume(running)
    moved = replace(move_rates(fleet, seed), state=RunningState(None, running))
    moved = replace(moved, policy=replace(moved.policy, horizon_minutes=minutes))
    found = value(moved, find(moved, SolveBudget(None, 3, seed), alone=True).plan)
    mended = repair_running(tables(moved))
    assert found <= value(moved, Plan(tuple(mended.instances), unserved=tuple(mended.unserved))) * (1 + 1e-9)
    as_it_runs = Plan(running, unserved=list_unserved(moved, running))
    if judge(moved, as_it_runs, simulate=False, keeps=keep).is_right:
        assert found <= value(moved, as_it_runs) * (1 + 1e-9)


@pytest.mark.slow
def test_a_draft_costs_what_the_judge_says_with_its_churn_and_the_price_of_each_change(moved: Problem) -> None:
    t, policy = tables(moved), moved.policy
    drafts = [draft for draft in islice(search(t, 1), 60) if draft.method]
    assert len(drafts) > 3
    assert moved.state
    running = judge(replace(moved, state=None), Plan(moved.state.running), simulate=False).cost.resource
    each = change_price(policy.move_price, running, len(moved.state.running))
    for draft in drafts:
        lines, unserved = instances(t, draft.placed)
        verdict = judge(moved, Plan(tuple(lines), unserved=tuple(unserved)), simulate=False)
        due = verdict.cost.churn + each * verdict.changes.made
        assert draft.cost == pytest.approx(verdict.cost.total + due * 60 / policy.horizon_minutes)


@pytest.mark.slow
def test_it_hands_over_less_than_a_plan_from_nothing_and_costs_less_with_its_churn(moved: Problem) -> None:
    found = find(moved, SolveBudget(None, 60), alone=True).plan
    fresh = plan_without_bound(replace(moved, state=None), 60)
    fitted = replace(fresh, instances=tuple(match_running(tables(moved), fresh.instances)))
    after, laid = (judge(moved, plan, simulate=False, keeps=keep) for plan in (found, fitted))
    assert after.changes.made < laid.changes.made
    price = change_price(moved.policy.move_price, after.cost.resource, len(found.instances))
    saved = (laid.changes.made - after.changes.made) * price
    assert value(moved, found) < value(moved, fitted) + saved


@pytest.mark.slow
def test_counted_work_finds_the_same_plan_and_a_replay_finds_it_again(moved: Problem) -> None:
    first, second = (find(moved, SolveBudget(None, 30, 5), alone=True) for _ in range(2))
    assert first.plan.instances == second.plan.instances
    assert replay_plan(moved, 5, first.work, is_exact=first.is_exact).instances == first.plan.instances


@pytest.mark.slow
def test_what_was_found_is_left_alone_where_nothing_moves(moved: Problem) -> None:
    plan = find(moved, SolveBudget(None, 30), alone=True).plan
    still = replace(moved, state=RunningState(None, plan.instances))
    again = find(still, SolveBudget(None, 1), alone=True).plan
    assert value(still, again) <= value(still, replace(plan, changes=again.changes)) * (1 + 1e-9)
    services = ServicePlan(list(again.instances), list(again.unserved), "")
    assert finish_services(tables(still), services, None).changes.keep >= len(plan.instances) - again.changes.made


def test_a_gpu_where_a_job_must_stay_is_not_refilled() -> None:
    problem = family("A", 8, 4, 2)
    t = tables(problem)
    shop = prepare(t)
    draft = next(draft for draft in search(t, 1) if draft.method)
    seat_all(t, shop, instances(t, draft.placed)[0], ())
    gpu = int(shop.used[0])
    before = _residents(shop.board.offer[gpu], int(shop.board.count[gpu]))
    shop.pools.closed[gpu] = 1
    shop.improve(np.ones(len(t.services)), np.zeros(len(t.pools)), 1, 200, 100.0)
    assert _residents(shop.board.offer[gpu], int(shop.board.count[gpu])) == before


def _residents(offers: np.ndarray, count: int) -> list[int]:
    return sorted(offers[:count].tolist())
