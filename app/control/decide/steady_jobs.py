"""Jobs stay as they run, unless another GPU or share makes them finish sooner by more than it costs to get there.

A job has no hand-over: on another GPU or share it saves, ends, starts again and warms up. A plan's objective does not
include that; this undoes changes that gain too little. For the same reason a job that waits in host memory goes on
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.control.formulate.predict import predict_instances
from solvers.planning.judge import JudgedPlan, PlanEdit
from solvers.planning.plan import Plan
from solvers.planning.problem import PlacedJob, Problem
from solvers.planning.search.promise import keep

RESTART_SECONDS = 120.0  # repeated work, and the start
WORTH_SHARE = 0.05  # of the remaining time
MOST_TRIES = 50


def keep_jobs_steady(problem: Problem, plan: Plan, units_left: Mapping[str, float]) -> Plan:
    """Returns the plan with jobs as they run, or ran before they were swapped, if that breaks no rule and costs little.

    `units_left` is the work of each job that is left; of a job that is not named there, the problem says it.
    """
    state = problem.state
    before = {placed.job: placed for placed in (*state.swapped, *state.jobs)} if state else {}
    changed = [placed for placed in plan.jobs if placed.job in before and not _same(placed, before[placed.job])]
    if not changed:
        return plan
    judged = JudgedPlan(problem, plan, keep)
    wrong = {(violation.where, violation.rule) for violation in judged.verdict().violations}
    found = {placed.job: placed for placed in plan.jobs}
    cost = judged.verdict().cost.job
    for new in changed[:MOST_TRIES]:
        old = before[new.job]
        verdict = judged.apply(PlanEdit(stop_jobs=(found[new.job],), start_jobs=(old,)))
        right = all((violation.where, violation.rule) in wrong for violation in verdict.violations)
        pace = next(
            (resident.units_per_second or 0.0 for resident in judged.job_residents if resident.placed.job == new.job),
            0.0,
        )
        units = units_left.get(new.job, problem.jobs[new.job].units)
        if right and verdict.cost.job <= cost * (1 + 1e-9) and not _pays(units, pace, new.units_per_second):
            found[new.job] = replace(old, units_per_second=pace)
            judged.apply(PlanEdit(stop_jobs=(old,), start_jobs=(found[new.job],)))
        else:
            judged.apply(PlanEdit(stop_jobs=(old,), start_jobs=(found[new.job],)))
    places = {placed.place for placed in changed} | {before[placed.job].place for placed in changed}
    predicted = predict_instances(
        problem, (resident for resident in judged.residents if resident.instance.place in places)
    )
    return replace(
        plan,
        jobs=tuple(found[placed.job] for placed in plan.jobs),
        instances=tuple(predicted.get(id(line), line) for line in plan.instances),
    )


def _same(placed: PlacedJob, other: PlacedJob) -> bool:
    return placed.places == other.places and placed.sm_percent == other.sm_percent


def _pays(units: float, before: float, after: float) -> bool:
    """Returns whether it finishes sooner by more than a restart takes."""
    if before <= 0:
        return after > 0
    now, then = units / before, units / max(after, 1e-12)
    return now - then > max(RESTART_SECONDS, WORTH_SHARE * now)
