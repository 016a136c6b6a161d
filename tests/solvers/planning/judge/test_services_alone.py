"""Services that are right beside jobs are right without them, and at lower rates: their timeouts are from before."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from app.control.formulate.problem import build_problem
from app.manifests.offline import load
from solvers.planning.judge import judge, judge_services
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, find


@cache
def fleet() -> tuple[Problem, Plan]:
    """The fleet of `gpuwright up` at so much load that its first plan has a job beside a service."""
    declared = build_problem(load([Path("examples/fleet.yaml")]))
    for tenths in range(10, 30):
        rates = {name: service.rate_per_second * tenths / 10 for name, service in declared.services.items()}
        problem = declared.change_rates(rates)
        plan = find(problem, SolveBudget(None, 1, 1), alone=True).plan
        assert judge(problem, plan, simulate=False, keeps=keep).is_right
        if {placed.place for placed in plan.jobs} & {line.place for line in plan.instances}:
            return problem, plan
    pytest.fail("no job shares a GPU with a service")


def test_a_plan_with_jobs_is_right_without_them() -> None:
    problem, plan = fleet()
    assert judge_services(problem, plan, keep).violations == ()


def test_what_runs_beside_jobs_is_right_without_them() -> None:
    problem, plan = fleet()
    running = replace(problem, state=RunningState(None, plan.instances, plan.jobs))
    assert judge_services(running, Plan(plan.instances), keep).violations == ()


@pytest.mark.parametrize("share", [0.99, 0.7, 0.2, 0.01])
def test_a_rate_that_falls_breaks_no_slo(share: float) -> None:
    problem, plan = fleet()
    rates = {name: service.rate_per_second * share for name, service in problem.services.items()}
    lines = tuple(replace(line, rate_per_second=line.rate_per_second * share) for line in plan.instances)
    assert judge_services(problem.change_rates(rates), replace(plan, instances=lines), keep).violations == ()


def test_a_timeout_that_is_too_long_still_breaks_the_slo() -> None:
    problem, plan = fleet()
    line = next(line for line in plan.instances if line.batch > 1)
    longer = replace(line, batch_timeout_ms=problem.services[line.service].slo_ms)
    lines = tuple(longer if other is line else other for other in plan.instances)
    found = judge(problem, replace(plan, instances=lines), simulate=False, keeps=keep).violations
    assert any(violation.where.startswith(line.service) and violation.rule == "slo_holds" for violation in found)
