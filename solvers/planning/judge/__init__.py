"""The judge: finds the rules that a plan breaks, its cost and how well it keeps its SLOs, in plain loops.

It knows problems and plans, and nothing of how plans are made. Every rule is a function of the rule's name.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import inf

from solvers.planning.judge.claims import find_misstated
from solvers.planning.judge.judged_plan import JudgedPlan, Keeps
from solvers.planning.judge.plan_edit import PlanEdit
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import Resident, slow_down
from solvers.planning.judge.verdict import Verdict, Violation
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Place, Problem, RunningState

__all__ = ["JudgedPlan", "Keeps", "PlanEdit", "Resident", "Verdict", "Violation", "judge", "judge_services"]


def judge(problem: Problem, plan: Plan, simulate: bool = True, keeps: Keeps | None = None) -> Verdict:
    """Checks every rule on the whole plan. Without `simulate`, `keeps` alone judges the SLOs, if given."""
    judged_plan = JudgedPlan(problem, plan, keeps)
    verdict = judged_plan.verdict()
    if simulate:
        from solvers.planning.judge.attainment import slos_hold  # compiled: a judgement without it starts sooner

        attainment, found = slos_hold(problem, judged_plan.residents)
        verdict = replace(verdict, attainment=attainment, violations=tuple(sorted([*verdict.violations, *found])))
    return replace(verdict, misstated=find_misstated(problem, plan, judged_plan, verdict))


def judge_services(problem: Problem, plan: Plan, keeps: Keeps) -> Verdict:
    """Judges the services of a plan as if it had no jobs, and had not prolonged batch timeouts for them."""
    state = problem.state
    places = {place for job in (*plan.jobs, *(state.jobs if state else ())) for place in job.places}
    alone = replace(problem, jobs={}, state=RunningState(state.now, state.running) if state else None)
    bare = replace(plan, instances=_limit_timeouts(alone, plan.instances, places), jobs=(), unplaced=())
    return judge(alone, bare, simulate=False, keeps=keeps)


def _limit_timeouts(problem: Problem, instances: tuple[Instance, ...], places: Set[Place]) -> tuple[Instance, ...]:
    """Returns the instances with timeouts no longer than they execute on these GPUs without jobs.

    Beside a job an instance executes longer, and its batches may wait as long as that; longer waits are not allowed.
    """
    there = [line for line in instances if line.place in places and line.node in problem.nodes]
    gpus = gpus_with(problem, [line for line in there if line.service in problem.services], ())
    for gpu in gpus.values():
        slow_down(gpu, problem.policy)
    longest = {
        id(line.instance): line.exec_ms * (1 + problem.policy.exec_margin)
        for gpu in gpus.values()
        for line in gpu.residents
        if line.exec_ms is not None
    }
    return tuple(
        replace(line, batch_timeout_ms=longest[id(line)])
        if line.batch_timeout_ms > longest.get(id(line), inf)
        else line
        for line in instances
    )
