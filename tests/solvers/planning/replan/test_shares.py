"""A resize that carries nothing is not made, and what is left out harms no plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from solvers.planning.judge import Verdict, judge
from solvers.planning.plan import Plan, ServicePlan
from solvers.planning.problem import Instance, Place, Problem, RunningState
from solvers.planning.replan.match import match_running
from solvers.planning.replan.shares import keep_shares
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.small_fleets import fleets
from tests.support.soak import SOAK

pytestmark = pytest.mark.slow

checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]  # many plans fill their GPUs
quick = settings(max_examples=200 if SOAK else 5, deadline=None, suppress_health_check=checks)
FIRST = SolveBudget(seconds=None, work=0)
BETTER = SolveBudget(seconds=None, work=2)


def beside(problem: Problem, running: tuple[Instance, ...]) -> Problem:
    return replace(problem, state=RunningState(running=running))


def judged(problem: Problem, instances: list[Instance]) -> Verdict:
    return judge(problem, Plan(tuple(instances)), keeps=keep)


@quick
@given(fleets(), st.integers(0, 7), st.integers(1, 9))
def test_what_runs_with_a_little_less_or_more_keeps_its_share(problem: Problem, chosen: int, more: int) -> None:
    plan = solve(problem, FIRST)
    assume(plan.instances and not plan.unserved)
    used: Counter[Place] = Counter()
    for line in plan.instances:
        used[line.place] += line.sm_percent
    roomy = [line for line in plan.instances if used[line.place] + more <= 100]
    assume(roomy)
    line = roomy[chosen % len(roomy)]
    larger = replace(line, id="shop/resized", sm_percent=line.sm_percent + more)
    planned = [larger if other is line else other for other in plan.instances]
    problem = beside(problem, plan.instances)
    assume(judged(problem, planned).is_right)
    found = keep_shares(tables(problem), ServicePlan(planned, [], "planned"))
    verdict = judged(problem, found.instances)
    assert verdict.is_right
    assert verdict.changes.keep == len(plan.instances) == len(found.instances)
    assert {other.id for other in found.instances} == {other.id for other in plan.instances}


@quick
@given(fleets(), st.floats(0.6, 1.4))
def test_fewer_resizes_cost_nothing_and_serve_as_much(problem: Problem, factor: float) -> None:
    plan = solve(problem, FIRST)
    rates = {name: service.rate_per_second * factor for name, service in problem.services.items()}
    changed = problem.change_rates(rates)
    cold = solve(changed, BETTER)
    assume(not cold.unserved)
    changed = beside(changed, plan.instances)
    fitted = match_running(tables(changed), cold.instances)
    found = keep_shares(tables(changed), ServicePlan(fitted, [], "fitted"))
    before, after = judged(changed, fitted), judged(changed, found.instances)
    assert after.is_right
    assert after.cost.total <= before.cost.total * (1 + 1e-9)
    assert after.cost.churn <= before.cost.churn * (1 + 1e-9)
    assert len({line.id for line in found.instances}) == len(found.instances)
