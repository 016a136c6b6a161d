"""Asks other planners about a problem, each by counted work, so that no plan need cost more than theirs.

A planner is left out where its usual time for a problem of this size exceeds what its answer may be worth. Where GPUs
are short, that is more: a rule made for that may be ahead of a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from solvers.planners.ask import PlanRefused, drafter_of, judge_draft
from solvers.planners.names import (
    HETSEV,
    HPA_CHEAPEST,
    INSS,
    MELANGE,
    MORAK,
    MUDI,
    OLTUNES,
    ONE_PER_GPU,
    RESERVE,
)
from solvers.planning.jobs.wide import leave_out_wide_jobs
from solvers.planning.plan import OtherPlan, find_served_share
from solvers.planning.planner_draft import PlannerBudget, RivalPlan
from solvers.planning.problem import Problem

# Milliseconds of a core for each thousand pairs of a service and a GPU, as measured at 100 GPUs and 50 services.
USUAL_MS: Mapping[str, float] = {
    HETSEV: 200.0, MUDI: 30.0, INSS: 150.0, MORAK: 400.0, OLTUNES: 120.0, RESERVE: 60.0, MELANGE: 1_000.0,
    ONE_PER_GPU: 10.0, HPA_CHEAPEST: 15.0,
}  # fmt: skip
MOST_MS, MOST_SHORT_MS = 300.0, 2_500.0  # of each planner: of a quick one, and where GPUs are short


def ask_others(problem: Problem, *, quick: bool) -> Sequence[RivalPlan]:
    """Returns the judged plan of each planner that is quick for this problem, or that takes longer and is worth it."""
    gpus = sum(node.gpu_count for node in problem.nodes.values())
    return [_ask(problem, planner) for planner in list_planners(len(problem.services), gpus, quick=quick)]


def list_planners(services: int, gpus: int, *, quick: bool) -> list[str]:
    """Returns the planners that are quick for so many services and GPUs, or those that take longer and are worth it."""
    least_ms, most_ms = (-1.0, MOST_MS) if quick else (MOST_MS, MOST_SHORT_MS)
    return [planner for planner, each_ms in USUAL_MS.items() if least_ms < each_ms * services * gpus / 1000 <= most_ms]


def _ask(problem: Problem, planner: str) -> RivalPlan:
    """Asks one planner; what it remembers is not used, so that the same problem has the same answer."""
    try:
        draft = drafter_of(planner)(leave_out_wide_jobs(problem), {}, PlannerBudget())
        plan, verdict, _ = judge_draft(problem, planner, draft)
    except PlanRefused as refused:
        return RivalPlan(OtherPlan(planner, None, 0.0, str(refused)))
    except Exception as error:  # another planner's bug is no reason to have no plan
        return RivalPlan(OtherPlan(planner, None, 0.0, f"{planner} failed: {type(error).__name__}: {error}"))
    return RivalPlan(OtherPlan(planner, verdict.cost, find_served_share(problem, plan.unserved)), plan)
