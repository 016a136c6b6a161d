"""Turns the best draft into a plan: adds instances and jobs, has it judged and drops what the judge refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from solvers.planning.batches.batch import GroupRow
from solvers.planning.beside import has_language_models, merge_language_instances, ordinary_part, wide_of
from solvers.planning.bound import Round
from solvers.planning.drafting.drafts import SearchDraft
from solvers.planning.fleet.predictions import predict_again
from solvers.planning.judge import Verdict, judge
from solvers.planning.judge.tolerances import BUDGET_SHARE
from solvers.planning.kept_bound import BOUND_ERROR_SHARE
from solvers.planning.parts import Division, divide_as, join_parts
from solvers.planning.plan import Certificate, Plan, Releasable, ServicePlan, Unserved, list_unserved
from solvers.planning.problem import Instance, PlacedJob, Problem
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances
from solvers.planning.search.tables import Tables, tables

MOST_SIMULATED_INSTANCES = 300  # beyond it a simulation takes longer than a caller waits for a plan
REPAIR_ROUNDS = 4


def finish_plan(
    t: Tables, best: SearchDraft, known: float | None, method: str, division: Division | None = None
) -> Plan:
    """Returns the plan of a draft once the judge accepts it; with a division, the draft is one of its parts."""
    services = _completed(t, best, method)
    return finish_services(t, services, known) if division is None else finish_parts(division, services, known)


def finish_parts(
    division: Division, services: ServicePlan, known: float | None, running: Sequence[Instance] = ()
) -> Plan:
    """Returns the plan of the whole services that these parts belong to, once the judge accepts it."""
    state = division.whole.state
    whole = join_parts(division, services, [*running, *(state.running if state else ())])
    return finish_services(tables(division.whole), whole, known, division.beside_jobs)


def finish_services(t: Tables, services: ServicePlan, known: float | None, beside_jobs: Problem | None = None) -> Plan:
    """Returns the plan of these services, with jobs and reasons, once the judge accepts it.

    Jobs are placed by the problem `beside_jobs`, if it is given.
    """
    problem = t.problem
    plan, verdict, method = _accepted(problem, services, beside_jobs or problem)
    bound, note = sound_bound(known, verdict.cost.total)
    return Plan(
        instances=plan.instances,
        jobs=plan.jobs,
        unserved=explained(problem, plan),
        unplaced=plan.unplaced,
        warnings=plan.warnings + warnings(problem) + _thin(t, plan),
        releasable=releasable(problem, plan),
        changes=verdict.changes,
        certificate=Certificate(verdict.cost, bound, method + note, 0, 0.0),
    )


def make_batches(problem: Problem, plan: Plan, row: GroupRow) -> Plan | None:
    """Returns the plan with the batches of these groups; None if none of them saves anything."""
    rest = _make_ordinary_batches(*ordinary_part(problem, plan), row)
    if rest is None or not has_language_models(problem):  # these stay as they are
        return rest
    wide, unserved = wide_of(problem, plan.instances), {entry.service: entry for entry in plan.unserved}
    return merge_language_instances(problem, rest, wide, unserved, simulate=False)[0]


def _make_ordinary_batches(problem: Problem, plan: Plan, row: GroupRow) -> Plan | None:
    from solvers.planning.batches.find import make_batches  # most plans have none

    division = divide_as(problem, plan)
    if division is None:
        services = make_batches(problem, plan, row)
        return finish_services(tables(problem), services, None) if services else None
    services = make_batches(division.problem, division.split_plan(plan), row)
    return finish_parts(division, services, None, plan.instances) if services else None


def _completed(t: Tables, best: SearchDraft, method: str) -> ServicePlan:
    """Adds what still fits to the draft's instances, or repairs the running ones, whichever costs less."""
    problem = t.problem
    is_running = bool(problem.state and problem.state.running)
    services = ServicePlan(*instances(t, best.placed), method)
    if services.unserved and services.instances:
        from solvers.planning.replan.running import top_up

        services = replace(top_up(t, services.instances, services.unserved), origin=method)
    if services.unserved and not is_running:
        from solvers.planning.explain import add_services  # most plans serve everything

        services = add_services(problem, services)
    if is_running:
        from solvers.planning.replan.running import choose_beside_running  # most problems begin with nothing
        from solvers.planning.replan.shares import keep_shares

        choice = keep_shares(t, choose_beside_running(t, services.instances, services.unserved))
        services = replace(choice, origin=choice.origin or method)
    return services


def _accepted(problem: Problem, services: ServicePlan, beside_jobs: Problem) -> tuple[Plan, Verdict, str]:
    """Adds jobs and takes out what the judge refuses; returns the plan, the verdict and the method."""
    placed, method = services.instances, services.origin
    unserved = services.unserved
    for attempt in range(REPAIR_ROUNDS + 1):
        plan, of_jobs = add_jobs(beside_jobs, placed, unserved)
        is_simulated = len(placed) <= MOST_SIMULATED_INSTANCES
        verdict = judge(problem, plan, simulate=is_simulated, keeps=keep)
        if verdict.is_right or not (plan.instances or plan.jobs):
            break
        staying = _staying(problem, verdict) if attempt == 0 else []
        if staying:
            from solvers.planning.explain import reseat

            method += f"; services moved to make room for {len(staying)} running jobs"
            placed = reseat(problem, placed, staying)
        else:
            method += f"; {len(verdict.violations)} violations found by the judge, services concerned left out"
            placed = _spared(problem, placed, verdict) if attempt < REPAIR_ROUNDS - 1 else []
        unserved = list(list_unserved(problem, placed))
    if not is_simulated:
        method += f"; SLOs checked by the latency table ({len(placed)} instances are too many to simulate)"
    return plan, verdict, method + of_jobs


def sound_bound(bound: float | None, cost: float) -> tuple[float | None, str]:
    """Returns the bound, at most the cost; None, with a note, if it exceeds the cost by more than rounding."""
    if bound is None or bound <= cost:
        return bound, ""
    if bound <= cost + BOUND_ERROR_SHARE * max(1.0, cost):
        return cost, ""
    return None, f"; the bound {bound:.9g} exceeded the cost and was dropped: a bug in the planner"


def about_bound(found: Round, left_out: Sequence[str]) -> str:
    """Describes a bound: its value and the rules it ignores."""
    return f"; bound {found.bound:.6g}" + (f", ignoring {', '.join(left_out)}" if left_out else "")


def add_jobs(problem: Problem, placed: Sequence[Instance], unserved: Sequence[Unserved]) -> tuple[Plan, str]:
    """Adds the jobs that fit next to the services; returns the plan and how its jobs were placed."""
    if not problem.jobs:
        return Plan(tuple(placed), unserved=tuple(unserved)), ""
    from solvers.planning.jobs import place_jobs  # most problems have none

    jobs = place_jobs(problem, placed)
    return Plan(jobs.instances, jobs.jobs, tuple(unserved), jobs.unplaced), f"; {jobs.method}"


def _thin(t: Tables, plan: Plan) -> tuple[str, ...]:
    """Warns of services whose SLOs leave room for hardly any load."""
    from solvers.planning import explain

    return explain.warnings(t, {instance.service for instance in plan.instances})


def explained(problem: Problem, plan: Plan) -> tuple[Unserved, ...]:
    """Returns the unserved services with reasons and with the changes that would serve them."""
    if not plan.unserved:
        return ()
    from solvers.planning.parts.reasons import explain_parts  # most plans serve everything

    return explain_parts(problem, plan)


def _staying(problem: Problem, verdict: Verdict) -> list[PlacedJob]:
    """Returns the running jobs that must stay but lost their room to services."""
    at = {violation.where for violation in verdict.violations if violation.rule == "running_job_stays"}
    return [job for job in problem.state.jobs if job.job in at] if problem.state else []


def _spared(problem: Problem, placed: Sequence[Instance], verdict: Verdict) -> list[Instance]:
    """Drops the services that a violation names or that use a GPU it names; drops all if it names neither.

    What ran beside them is faster now, and waits for its batches no longer than it runs.
    """
    at = {violation.where for violation in verdict.violations}
    at |= {f"{job.node}/{job.gpu}" for job in _staying(problem, verdict)}
    gone = {i.service for i in placed if i.service in at or f"{i.node}/{i.gpu}" in at or i.node in at}
    gone |= {i.service for i in placed if f"{i.service} on {i.node}/{i.gpu}" in at}
    gone |= {i.service for i in placed if problem.services[i.service].tenant in at}
    freed = {i.place for i in placed if i.service in gone}
    return predict_again(problem, [i for i in placed if i.service not in gone], (), freed)[0] if gone else []


def warnings(problem: Problem) -> tuple[str, ...]:
    """Names the limits that no plan can keep."""
    budget_w = problem.policy.power_budget_w
    idle_w = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
    if budget_w is None or idle_w <= budget_w * (1 + BUDGET_SHARE):
        return ()
    return (
        f"powerBudgetW: {budget_w:g} W is less than the {idle_w:g} W that the idle fleet draws; no plan can keep it",
    )


def releasable(problem: Problem, plan: Plan) -> tuple[Releasable, ...]:
    """Returns the nodes that run nothing, with what releasing each would save."""
    used = {instance.node for instance in plan.instances} | {job.node for job in plan.jobs}
    return tuple(
        Releasable(name, node.gpu_count * node.price_per_hour)
        for name, node in sorted(problem.nodes.items())
        if name not in used and node.pricing != "paid"
    )
