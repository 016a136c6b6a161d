"""The next cycle keeps the fast lane's plan: it is solved at the rates that the step was made for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.control.fast import CapacityNeed, QuickStep, StepKind, StepTrigger
from app.control.solve.inline import Inline
from benchmarks.families import family
from solvers.planning.judge import judge
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve
from tests.app.control.fast.quick_steps import Silent, quick_step
from tests.solvers.planning.small_fleets import fleets
from tests.support.soak import SOAK

pytestmark = pytest.mark.slow

CYCLE = SolveBudget(seconds=None, work=2)


def kept_or_worth_it(problem: Problem, quick: QuickStep) -> bool:
    """Whether a whole cycle, with the step as the current plan, keeps it all or saves more than its moves cost."""
    problem = problem.change_rates(quick.rates)
    problem = replace(problem, state=RunningState(running=quick.plan.instances, jobs=quick.plan.jobs))
    repeated = solve(problem, CYCLE)
    if repeated.changes.keep == len(repeated.instances) == len(quick.plan.instances):
        return True
    assert repeated.certificate
    kept = judge(problem, quick.plan, simulate=False, keeps=keep).cost
    found, hours = repeated.certificate.cost, problem.policy.horizon_minutes / 60
    return found.total * hours + found.churn < kept.total * hours * (1 - 1e-9)


@settings(max_examples=100 if SOAK else 8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets(), st.floats(1.02, 1.6), st.integers(0, 2))
def test_a_full_cycle_changes_a_quick_step_only_for_a_saving(problem: Problem, factor: float, who: int) -> None:
    plan = solve(problem, CYCLE)
    name = sorted(problem.services)[who % len(problem.services)]
    rate = problem.services[name].rate_per_second * factor
    running = replace(problem, state=RunningState(running=plan.instances))
    quick = quick_step(running, plan, [CapacityNeed(name, StepTrigger.LOAD_ROSE, rate, rate, "")], Inline())
    assert quick is None or quick.unserved or kept_or_worth_it(problem, quick)


@pytest.mark.parametrize(("factor", "rungs"), [(1.02, {StepKind.RETUNE}), (1.1, {StepKind.RESIZE})])
def test_each_rung_is_a_fixed_point_of_the_next_cycle(factor: float, rungs: set[StepKind]) -> None:
    problem = family("A", 40, 12, 3)
    problem = replace(problem, policy=replace(problem.policy, move_price=0.5))
    plan = solve(problem, SolveBudget(seconds=None, work=12))
    running = replace(problem, state=RunningState(running=plan.instances))
    found_rungs = set[StepKind]()
    for name in sorted(problem.services):
        rate = problem.services[name].rate_per_second * factor
        quick = quick_step(running, plan, [CapacityNeed(name, StepTrigger.LOAD_ROSE, rate, rate, "")], Silent())
        if quick and not quick.unserved and quick.rung in rungs - found_rungs:
            found_rungs.add(quick.rung)
            problem_then = replace(problem.change_rates(quick.rates), state=RunningState(running=quick.plan.instances))
            repeated = solve(problem_then, CYCLE)
            assert repeated.changes.keep == len(quick.plan.instances) == len(repeated.instances)
    assert found_rungs == rungs
