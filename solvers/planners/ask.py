"""Asks a planner by its name, and certifies its plan: the joint planner's bound is true of any plan.

The judge refuses a plan that breaks a hard rule. A promise that a plan cannot keep is counted: instances carry no more
than keeps their SLO, and the rest of a service's rate is unserved, at its price.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module

from solvers.planners.names import (
    HETSEV,
    HPA,
    HPA_CHEAPEST,
    INSS,
    LARGEST,
    MELANGE,
    MORAK,
    MUDI,
    OLTUNES,
    ONE_PER_GPU,
    RESERVE,
    TIME_SLICED,
    UnknownPlanner,
    find_added_planners,
)
from solvers.planning.beside import has_language_models
from solvers.planning.duals import Duals
from solvers.planning.finish import MOST_SIMULATED_INSTANCES, add_jobs, releasable, sound_bound, warnings
from solvers.planning.jobs.wide import leave_out_wide_jobs, seat_wide_jobs
from solvers.planning.judge import Verdict, judge
from solvers.planning.mixed import choose_models
from solvers.planning.plan import Certificate, Plan
from solvers.planning.planner_draft import PlanDrafter, PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Problem
from solvers.planning.search.promise import keep
from solvers.planning.solve import FoundBound, SolveBudget, draft_plan, find_bound

MOST_NAMED = 3  # broken rules, in a message
# Module and function; imported when they are asked, for each brings libraries that the others do not need.
DRAFTERS: Mapping[str, tuple[str, str]] = {
    HETSEV: ("solvers.hetsev.fleet", "plan"),
    MUDI: ("solvers.mudi.fleet", "plan"),
    INSS: ("solvers.inss.fleet", "plan"),
    MORAK: ("solvers.morak.fleet", "plan"),
    OLTUNES: ("solvers.oltunes.fleet", "plan"),
    HPA: ("solvers.baselines.hpa", "plan_random"),
    HPA_CHEAPEST: ("solvers.baselines.hpa", "plan_cheapest"),
    RESERVE: ("solvers.baselines.reserve", "plan"),
    MELANGE: ("solvers.baselines.whole", "plan_melange"),
    LARGEST: ("solvers.baselines.largest", "plan"),
    ONE_PER_GPU: ("solvers.baselines.whole", "plan_one_per_gpu"),
    TIME_SLICED: ("solvers.baselines.whole", "plan_time_sliced"),
}
BOUND_SHARE = 0.3  # of the seconds of a question: the plan itself takes much less than a second


class PlanRefused(Exception):
    """A planner's plan breaks a hard rule; the message names it."""


@dataclass(frozen=True, slots=True)
class PlannerAnswer:
    """A certified plan, what its planner remembers, and the prices that prove bounds at other rates."""

    plan: Plan
    knowledge: Knowledge
    duals: Duals | None = None


def find_plan(
    problem: Problem,
    planner: str,
    budget: SolveBudget,
    *,
    alone: bool = False,
    bounds: bool = True,
) -> PlannerAnswer:
    """Returns the plan of this planner, judged and with a bound; PlanRefused if it breaks a hard rule.

    Without `bounds` none is searched, as where a plan is only repeated.
    """
    began = time.monotonic()
    models = choose_models(problem, budget.seed, draft_plan) if has_language_models(problem) else None
    rest = models.rest if models else problem
    work = PlannerBudget(PlannerBudget().work if budget.work is None else budget.work, budget.seed)
    known = problem.state.knowledge.get(planner, {}) if problem.state else {}  # another planner's says nothing here
    draft = drafter_of(planner)(leave_out_wide_jobs(rest), known, work)
    plan, verdict, method = judge_draft(rest, planner, draft)
    certificate = Certificate(verdict.cost, None, f"{planner}: {method}", work.work, 0.0)
    plan = replace(plan, certificate=certificate)
    if models:
        plan = models.join(plan)
        assert plan.certificate
        certificate = plan.certificate
    seconds = None if budget.seconds is None else budget.seconds * BOUND_SHARE
    found = find_bound(problem, replace(budget, seconds=seconds), alone=alone) if bounds else FoundBound()
    bound, note = sound_bound(found.bound, certificate.cost.total)
    method, spent = f"{certificate.method}{note}{found.proof}", time.monotonic() - began
    certificate = replace(certificate, bound=bound, method=method, seconds=spent).add_programme(found.programme)
    return PlannerAnswer(replace(plan, certificate=certificate), {planner: draft.knowledge}, found.duals)


def drafter_of(planner: str) -> PlanDrafter:
    """Returns the planner of this name."""
    drafter: PlanDrafter
    if planner in DRAFTERS:
        module, function = DRAFTERS[planner]
        drafter = getattr(import_module(module), function)
        return drafter
    for entry in find_added_planners().select(name=planner):
        drafter = entry.load()
        return drafter
    raise UnknownPlanner(planner)


def judge_draft(problem: Problem, planner: str, draft: PlannerDraft) -> tuple[Plan, Verdict, str]:
    """Has the draft judged, with the jobs that fit if it has none; PlanRefused names the rules it breaks."""
    if draft.jobs is None:
        plan, of_jobs = add_jobs(problem, draft.instances, draft.unserved)
    else:
        wide = seat_wide_jobs(problem, draft.instances, draft.jobs)
        jobs, unplaced = (*draft.jobs, *wide.placed), (*draft.unplaced, *wide.unplaced)
        plan, of_jobs = Plan(draft.instances, jobs, draft.unserved, unplaced), ""
    is_simulated = len(plan.instances) <= MOST_SIMULATED_INSTANCES
    verdict = judge(problem, plan, simulate=is_simulated, keeps=keep)
    if not verdict.is_right:
        broken = "; ".join(str(violation) for violation in verdict.violations[:MOST_NAMED])
        raise PlanRefused(f"the plan of {planner} breaks {len(verdict.violations)} rules: {broken}")
    plan = replace(
        plan, warnings=warnings(problem), releasable=releasable(problem, plan), changes=verdict.changes
    )  # fmt: skip
    return plan, verdict, draft.method + of_jobs
