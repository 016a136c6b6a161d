"""Finds what a plan states wrongly besides its decision. That breaks no rule, but would mislead readers."""

from __future__ import annotations

from collections.abc import Iterator

from solvers.planning.judge.judged_plan import JudgedPlan
from solvers.planning.judge.plan_lines import where
from solvers.planning.judge.tolerances import CLAIM_SHARE
from solvers.planning.judge.verdict import Verdict, Violation
from solvers.planning.plan import Changes, Plan
from solvers.planning.problem import Problem


def find_misstated(problem: Problem, plan: Plan, judged_plan: JudgedPlan, verdict: Verdict) -> tuple[Violation, ...]:
    """Returns predictions, changes, costs and releasable nodes that differ from the judge's; 0 states nothing."""
    found = [*_predictions(judged_plan), *_releasable(problem, plan)]
    if plan.changes not in (Changes(), verdict.changes):
        found.append(Violation("changes", "changes_told", f"they are {verdict.changes}"))
    if plan.certificate:
        claimed = plan.certificate.cost
        for name in ("resource", "unserved", "job", "churn"):
            stated, is_so = getattr(claimed, name), getattr(verdict.cost, name)
            if _differ(stated, is_so):
                found.append(Violation("certificate", "cost_told", f"{name} cost {stated:.8g} is {is_so:.8g}"))
        bound = plan.certificate.bound
        if bound is not None and bound > verdict.cost.total * (1 + 1e-9):
            sentence = f"the bound {bound:.8g} is above the cost {verdict.cost.total:.8g}"
            found.append(Violation("certificate", "bound_told", sentence))
    return tuple(sorted(found))


def _predictions(judged_plan: JudgedPlan) -> Iterator[Violation]:
    """predicted.execMs is exec without the margin, predicted.stepsPerSecond the job's speed, each within 1 %"""
    for line in judged_plan.residents:
        stated = line.instance.exec_ms
        if stated and line.exec_ms is not None and _differ(stated, line.exec_ms):
            yield Violation(where(line.instance), "exec_told", f"predicted execMs {stated:.6g} is {line.exec_ms:.6g}")
    for job in judged_plan.job_residents:
        stated = job.placed.units_per_second
        if stated and job.units_per_second is not None and _differ(stated, job.units_per_second):
            sentence = f"predicted {stated:.6g} a second is {job.units_per_second:.6g}"
            yield Violation(where(job.placed), "speed_told", sentence)


def _releasable(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """nothing runs on a releasable node, and perHour = GPUs x price"""
    used = {instance.node for instance in plan.instances} | {job.node for job in plan.jobs}
    for entry in plan.releasable:
        node = problem.nodes.get(entry.node)
        if node is None:
            yield Violation(entry.node, "releasable_told", "there is no such node")
        elif entry.node in used:
            yield Violation(entry.node, "releasable_told", "something runs on it")
        elif _differ(entry.price_per_hour, node.gpu_count * node.price_per_hour):
            saves = node.gpu_count * node.price_per_hour
            yield Violation(entry.node, "releasable_told", f"it saves {saves:g} an hour, not {entry.price_per_hour:g}")


def _differ(stated: float, is_so: float) -> bool:
    return abs(stated - is_so) > CLAIM_SHARE * max(abs(is_so), 1e-9)
