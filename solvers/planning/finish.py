"""Turns the best draft into a plan: adds instances and jobs, has it judged and drops what the judge refuses."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from solvers.planning.bound import Round
from solvers.planning.judge import Verdict, judge
from solvers.planning.judge.tolerances import BUDGET
from solvers.planning.plan import Certificate, Plan, Releasable, Unserved, unserved_rest
from solvers.planning.problem import Instance, PlacedJob, Problem
from solvers.planning.search.drafts import SearchDraft
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances
from solvers.planning.search.tables import Tables

MOST_SIMULATED_INSTANCES = 300  # beyond it a simulation takes longer than a caller waits for a plan
REPAIR_ROUNDS = 4
BOUND_ERROR_SHARE = 2e-6  # of a cost: a bound that exceeds the cost by more than rounding is wrong


def finish_plan(t: Tables, best: SearchDraft, known: float | None, method: str) -> Plan:
    """Returns the plan of a draft once the judge accepts it."""
    problem = t.problem
    stand, unserved = instances(t, best.stands)
    if unserved and stand:
        from solvers.planning.replan.running import top_up

        topped_up = top_up(t, stand, unserved)
        stand, unserved = topped_up.instances, topped_up.unserved
    if unserved and not (problem.state and problem.state.running):
        from solvers.planning.explain import fill_unserved

        roomy = fill_unserved(problem, Plan(tuple(stand), unserved=tuple(unserved)))
        more = len(unserved) - len(roomy.unserved)
        method = f"{more} services added in free capacity; {method}" if more else method
        stand, unserved = list(roomy.instances), list(roomy.unserved)
    if problem.state and problem.state.running:
        from solvers.planning.replan.running import beside_running  # most problems begin with nothing

        choice = beside_running(t, stand, unserved)
        stand, unserved = choice.instances, choice.unserved
        method = choice.origin or method
    for attempt in range(REPAIR_ROUNDS + 1):
        plan, of_jobs = _whole(problem, stand, unserved)
        simulated = len(stand) <= MOST_SIMULATED_INSTANCES
        verdict = judge(problem, plan, simulate=simulated, keeps=keep)
        if verdict.is_right or not (plan.instances or plan.jobs):
            break
        staying = _staying(problem, verdict) if attempt == 0 else []
        if staying:
            from solvers.planning.explain import reseat

            method += f"; services moved to make room for {len(staying)} running jobs"
            stand = reseat(problem, stand, staying)
        else:
            method += f"; {len(verdict.violations)} violations found by the judge, services concerned left out"
            stand = _spared(problem, stand, verdict) if attempt < REPAIR_ROUNDS - 1 else []
        unserved = list(unserved_rest(problem, stand))
    if not simulated:
        method += f"; SLOs checked by the latency table ({len(stand)} instances are too many to simulate)"
    method += of_jobs
    explanations = _explained(problem, plan)
    cost = verdict.cost
    sound = known
    if known is not None and known > cost.total:
        sound = cost.total
        if known > cost.total + BOUND_ERROR_SHARE * max(1.0, cost.total):
            sound = None
            method += f"; the bound {known:.9g} exceeded the cost and was dropped: a bug in the planner"
    return Plan(
        instances=plan.instances,
        jobs=plan.jobs,
        unserved=explanations,
        unplaced=plan.unplaced,
        warnings=plan.warnings + warnings(problem) + _thin(t, plan),
        releasable=releasable(problem, plan),
        changes=verdict.changes,
        certificate=Certificate(cost, sound, method, 0, 0.0),
    )


def about_bound(found: Round, left_out: Sequence[str]) -> str:
    """Describes a bound: its value, the most its model could prove if known, and the rules it ignores."""
    text = f"; bound {found.bound:.6g}"
    if found.bound < found.limit < inf:
        text += f" (this method could prove at most {found.limit:.6g})"
    return text + (f", ignoring {', '.join(left_out)}" if left_out else "")


def _whole(problem: Problem, stand: Sequence[Instance], unserved: Sequence[Unserved]) -> tuple[Plan, str]:
    """Adds the jobs that fit next to the services; returns the plan and how its jobs were placed."""
    if not problem.jobs:
        return Plan(tuple(stand), unserved=tuple(unserved)), ""
    from solvers.planning.jobs import place_jobs  # most problems have none

    placed = place_jobs(problem, stand)
    return Plan(placed.instances, placed.jobs, tuple(unserved), placed.unplaced), f"; {placed.method}"


def _thin(t: Tables, plan: Plan) -> tuple[str, ...]:
    """Warns of services whose SLOs leave room for hardly any load."""
    from solvers.planning import explain

    return explain.warnings(t, {instance.service for instance in plan.instances})


def _explained(problem: Problem, plan: Plan) -> tuple[Unserved, ...]:
    """Returns the unserved services with reasons and with the changes that would serve them."""
    if not plan.unserved:
        return ()
    from solvers.planning.explain import explained  # most plans serve everything

    return explained(problem, plan)


def _staying(problem: Problem, verdict: Verdict) -> list[PlacedJob]:
    """Returns the running jobs that must stay but lost their room to services."""
    at = {violation.where for violation in verdict.violations if violation.rule == "running_job_stays"}
    return [job for job in problem.state.jobs if job.job in at] if problem.state else []


def _spared(problem: Problem, stand: Sequence[Instance], verdict: Verdict) -> list[Instance]:
    """Drops the services that a violation names or that use a GPU it names; drops all if it names neither."""
    at = {violation.where for violation in verdict.violations}
    at |= {f"{job.node}/{job.gpu}" for job in _staying(problem, verdict)}
    gone = {i.service for i in stand if i.service in at or f"{i.node}/{i.gpu}" in at or i.node in at}
    gone |= {i.service for i in stand if f"{i.service} on {i.node}/{i.gpu}" in at}
    gone |= {i.service for i in stand if problem.services[i.service].tenant in at}
    return [i for i in stand if i.service not in gone] if gone else []


def warnings(problem: Problem) -> tuple[str, ...]:
    """Names the limits that no plan can keep."""
    budget_w = problem.policy.power_budget_w
    idle_w = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
    if budget_w is None or idle_w <= budget_w * (1 + BUDGET):
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
        if name not in used
    )
