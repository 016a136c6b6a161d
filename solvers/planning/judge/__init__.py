"""The judge: finds the rules that a plan breaks, its cost and how well it keeps its SLOs, in plain loops.

It knows problems and plans, and nothing of how plans are made. Every rule is a function of the rule's name.
"""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.judge.claims import misstated
from solvers.planning.judge.judged_plan import JudgedPlan, Keeps
from solvers.planning.judge.plan_edit import PlanEdit
from solvers.planning.judge.readings import Resident
from solvers.planning.judge.verdict import Verdict, Violation
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, RunningState

__all__ = ["JudgedPlan", "Keeps", "PlanEdit", "Resident", "Verdict", "Violation", "judge", "judge_services"]


def judge(problem: Problem, plan: Plan, simulate: bool = True, keeps: Keeps | None = None) -> Verdict:
    """Checks every rule on the whole plan. Without `simulate`, `keeps` alone judges the SLOs, if given."""
    judged_plan = JudgedPlan(problem, plan, keeps)
    verdict = judged_plan.verdict()
    if simulate:
        from solvers.planning.judge.attainment import slos_hold  # compiled: a judgement without it starts sooner

        attainment, found = slos_hold(problem.policy, judged_plan.residents)
        verdict = replace(verdict, attainment=attainment, violations=tuple(sorted([*verdict.violations, *found])))
    return replace(verdict, misstated=misstated(problem, plan, judged_plan, verdict))


def judge_services(problem: Problem, plan: Plan, keeps: Keeps) -> Verdict:
    """Judges the services of a plan as if it had no jobs."""
    state = problem.state
    alone = replace(problem, jobs={}, state=RunningState(state.now, state.running) if state else None)
    return judge(alone, replace(plan, jobs=(), unplaced=()), simulate=False, keeps=keeps)
