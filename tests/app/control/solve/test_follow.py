"""Following the rates: computed from problem, plan and rates alone, while a whole plan is being searched."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from app.control.domain.decision import SolveOutcome
from app.control.solve.inline import Inline
from app.control.solve.solver import Solver
from benchmarks.families import family
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from tests.app.control.solve.test_solver import LONG, running


@cache
def problem() -> Problem:
    return family("A", 16, 6, 0)


@pytest.fixture(scope="module")
def plan() -> Plan:
    plan = Inline().solve(problem(), seconds=0, work=10).plan
    assert plan
    return plan


def rates(problem: Problem, factor: float, count: int = 1) -> dict[str, float]:
    names = sorted(problem.services)[:count]
    return {name: problem.services[name].rate_per_second * factor for name in names}


@pytest.mark.slow
def test_the_answer_is_made_of_problem_plan_and_rates_alone(solver: Solver, plan: Plan) -> None:
    wanted = rates(problem(), 1.3)
    first = solver.follow(problem(), plan, wanted, seconds=LONG)
    between = solver.follow(problem(), plan, rates(problem(), 0.4, 3), seconds=LONG)
    second = solver.follow(problem(), plan, wanted, seconds=LONG)
    assert first.outcome is between.outcome is SolveOutcome.SOLVED
    assert first.plan == second.plan == Inline().follow(problem(), plan, wanted, seconds=0).plan
    assert between.plan != first.plan


@pytest.mark.slow
def test_the_followed_plan_is_right_at_the_new_rates(solver: Solver, plan: Plan) -> None:
    wanted = rates(problem(), 1.5, 2)
    answer = solver.follow(problem(), plan, wanted, seconds=LONG)
    assert answer.plan
    assert not judge(problem().change_rates(wanted), answer.plan).violations


@pytest.mark.slow
def test_another_plan_is_followed_from_its_own_beginning(solver: Solver, plan: Plan) -> None:
    wanted = rates(problem(), 1.3)
    answer = solver.follow(problem(), plan, wanted, seconds=LONG)
    assert answer.plan
    risen = problem().change_rates(wanted)
    solver.prepare(problem(), plan)
    solver.prepare(risen, answer.plan)
    further = solver.follow(risen, answer.plan, rates(risen, 1.2), seconds=LONG)
    assert further.plan == Inline().follow(risen, answer.plan, rates(risen, 1.2), seconds=0).plan


@pytest.mark.slow
def test_not_ready_in_time_is_out_of_time_and_ready_the_next_time(solver: Solver, plan: Plan) -> None:
    fresh = problem().change_rates({})
    answer = solver.follow(fresh, plan, rates(problem(), 1.3), seconds=0)
    assert (answer.outcome, answer.message) == (SolveOutcome.OUT_OF_TIME, "this plan is not prepared yet")
    assert solver.follow(fresh, plan, rates(problem(), 1.3), seconds=LONG).outcome is SolveOutcome.SOLVED


@pytest.mark.slow
def test_what_cannot_be_followed_is_an_outcome(solver: Solver, plan: Plan) -> None:
    answer = solver.follow(problem(), plan, {"shop/nobody": 5.0}, seconds=LONG)
    assert answer.outcome is SolveOutcome.WRONG
    assert "unknown service shop/nobody" in answer.message
    assert solver.follow(problem(), plan, rates(problem(), 1.3), seconds=LONG).outcome is SolveOutcome.SOLVED


@pytest.mark.slow
def test_case_19_a_follower_killed_is_made_ready_again(solver: Solver, plan: Plan) -> None:
    wanted = rates(problem(), 1.3)
    before = solver.follow(problem(), plan, wanted, seconds=LONG)
    os.kill(solver.fast.pid, signal.SIGKILL)
    outcomes = {solver.follow(problem(), plan, wanted, seconds=LONG).outcome}
    after = solver.follow(problem(), plan, wanted, seconds=LONG)
    assert outcomes == {SolveOutcome.CRASHED}
    assert after.plan == before.plan


@pytest.mark.slow
def test_rates_are_followed_while_a_whole_plan_is_searched(solver: Solver, plan: Plan) -> None:
    with ThreadPoolExecutor(1) as aside:
        answering = aside.submit(solver.solve, family("A", 64, 24, 0), seconds=LONG, work=None)
        searching = running(solver.full)
        assert solver.follow(problem(), plan, rates(problem(), 1.3), seconds=LONG).outcome is SolveOutcome.SOLVED
        assert not answering.done()
        os.kill(searching[0], signal.SIGKILL)
