"""Asks for the plan of a recorded problem as `gpuwright solve --work` does, and judges it as `verify` does.

The manifests are the question. All that this knows of the planner stands here, so that only this follows a rewrite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import fsum

import msgspec

from app.control.formulate.problem import build_problem
from app.manifests.offline import Input, load
from solvers.planners.ask import PlanRefused, find_plan
from solvers.planners.names import JOINT
from solvers.planning.judge import Verdict, judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, find
from tests.net.answers import Answer
from tests.net.corpus import Series
from tests.net.counting import count_work
from tests.net.placements import list_placements

CHANGES = ("keep", "retune", "resize", "start", "stop", "move")


def answer_problem(series: Series, is_counted: bool = True) -> Answer:
    """Solves the problem of a series and judges the plan, with every promise simulated."""
    problem = read_problem(series)
    budget = SolveBudget(seconds=None, work=series.head.work, seed=series.head.seed)
    planner = problem.policy.planner

    def solve() -> Plan | None:
        if planner == JOINT:
            return find(problem, budget, alone=True).plan
        try:
            return find_plan(problem, planner, budget, alone=True).plan
        except PlanRefused:
            return None

    plan, counts = count_work(solve, is_counted)
    if plan is None:
        return Answer(name=series.name, outcome="refused", counts=counts)
    loads = {name: service.rate_per_second for name, service in problem.services.items()}
    steps = {"steps": plan.certificate.work} if plan.certificate else {}
    return describe(series.name, problem, plan, judge(problem, plan), counts | steps, loads)


def read_problem(series: Series) -> Problem:
    """Returns the problem that the manifests of a series declare."""
    return build_problem(load([Input(series.name, msgspec.json.encode(series.head.documents), "json")]))


def describe(
    name: str, problem: Problem, plan: Plan, verdict: Verdict, counts: dict[str, int], loads: Mapping[str, float]
) -> Answer:
    """Returns a judged plan in the words of the contract. `loads` are those of the question, by service."""
    carried: dict[str, float] = defaultdict(float)
    for instance in plan.instances:
        carried[instance.service] += instance.rate_per_second
    bound = plan.certificate.bound if plan.certificate else None
    return Answer(
        name=name,
        outcome="solved",
        cost=verdict.cost.resource,
        unserved=verdict.cost.unserved,
        served_per_second=fsum(min(carried[service], load) for service, load in loads.items()),
        job=verdict.cost.job,
        churn=verdict.cost.churn,
        bound=bound,
        changes={kind: count for kind in CHANGES if (count := getattr(verdict.changes, kind))},
        broken=tuple(f"{broken.rule} at {broken.where}" for broken in verdict.violations),
        placements=list_placements(replace(plan, certificate=None), problem),
        counts=counts,
    )
