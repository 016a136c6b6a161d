"""From the best draft to the plan that leaves: realised, with jobs, judged; what the judge refuses is left out."""

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

MOST_SIMULATED = 300  # instances: beyond it a simulation takes longer than a plan is waited for
TRIES = 4
WRONG = 2e-6  # of a cost: a bound that is above it by more was never one


def finish_plan(t: Tables, best: SearchDraft, known: float | None, method: str) -> Plan:
    """The plan of a draft, passed by the judge."""
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
        method = f"{more} services fitted in beside {method}" if more else method
        stand, unserved = list(roomy.instances), list(roomy.unserved)
    if problem.state and problem.state.running:
        from solvers.planning.replan.running import beside_running  # most problems begin with nothing

        choice = beside_running(t, stand, unserved)
        stand, unserved = choice.instances, choice.unserved
        method = choice.origin or method
    for attempt in range(TRIES + 1):
        plan, of_jobs = _whole(problem, stand, unserved)
        simulated = len(stand) <= MOST_SIMULATED
        verdict = judge(problem, plan, simulate=simulated, keeps=keep)
        if verdict.is_right or not (plan.instances or plan.jobs):
            break
        staying = _staying(problem, verdict) if attempt == 0 else []
        if staying:
            from solvers.planning.explain import reseat

            method += f"; services made way for {len(staying)} running jobs"
            stand = reseat(problem, stand, staying)
        else:
            method += f"; the judge refused {len(verdict.violations)} things, left out"
            stand = _spared(problem, stand, verdict) if attempt < TRIES - 1 else []
        unserved = list(unserved_rest(problem, stand))
    if not simulated:
        method += f"; SLOs by the latency table ({len(stand)} instances: no simulation)"
    method += of_jobs
    told = _explained(problem, plan)
    cost = verdict.cost
    sound = known
    if known is not None and known > cost.total:
        sound = cost.total
        if known > cost.total + WRONG * max(1.0, cost.total):
            sound, method = None, f"{method}; its bound of {known:.9g} is above it and was dropped: a fault of ours"
    return Plan(
        instances=plan.instances,
        jobs=plan.jobs,
        unserved=told,
        unplaced=plan.unplaced,
        warnings=plan.warnings + warnings(problem) + _thin(t, plan),
        releasable=releasable(problem, plan),
        changes=verdict.changes,
        certificate=Certificate(cost, sound, method, 0, 0.0),
    )


def about_bound(found: Round, left_out: Sequence[str]) -> str:
    """What a bound's own model could prove at most, where that is known, and the rules that it knows nothing of."""
    told = f"; bound {found.bound:.6g}"
    if found.bound < found.limit < inf:
        told += f" of at most {found.limit:.6g} that its model can prove"
    return told + (f", which leaves out {', '.join(left_out)}" if left_out else "")


def _whole(problem: Problem, stand: Sequence[Instance], unserved: Sequence[Unserved]) -> tuple[Plan, str]:
    """The services' plan with the jobs that fit beside it, and how they were placed."""
    if not problem.jobs:
        return Plan(tuple(stand), unserved=tuple(unserved)), ""
    from solvers.planning.jobs import place_jobs  # most problems have none

    placed = place_jobs(problem, stand)
    return Plan(placed.instances, placed.jobs, tuple(unserved), placed.unplaced), f"; {placed.method}"


def _thin(t: Tables, plan: Plan) -> tuple[str, ...]:
    """Services that are served under SLOs which let hardly any load be accepted."""
    from solvers.planning import explain

    return explain.warnings(t, {instance.service for instance in plan.instances})


def _explained(problem: Problem, plan: Plan) -> tuple[Unserved, ...]:
    """What is unserved, with reasons and what would serve it."""
    if not plan.unserved:
        return ()
    from solvers.planning.explain import explained  # most plans serve everything

    return explained(problem, plan)


def _staying(problem: Problem, verdict: Verdict) -> list[PlacedJob]:
    """Running jobs that services left no room, though they must stay."""
    at = {violation.where for violation in verdict.violations if violation.rule == "running_job_stays"}
    return [job for job in problem.state.jobs if job.job in at] if problem.state else []


def _spared(problem: Problem, stand: Sequence[Instance], verdict: Verdict) -> list[Instance]:
    """Without the services that a violation names, and those on GPUs that one names; without all for any other."""
    at = {violation.where for violation in verdict.violations}
    at |= {f"{job.node}/{job.gpu}" for job in _staying(problem, verdict)}
    gone = {i.service for i in stand if i.service in at or f"{i.node}/{i.gpu}" in at or i.node in at}
    gone |= {i.service for i in stand if f"{i.service} on {i.node}/{i.gpu}" in at}
    gone |= {i.service for i in stand if problem.services[i.service].tenant in at}
    return [i for i in stand if i.service not in gone] if gone else []


def warnings(problem: Problem) -> tuple[str, ...]:
    """What no plan can make right."""
    budget_w = problem.policy.power_budget_w
    idle_w = sum(problem.gpu_types[node.gpu_type].idle_w * node.gpu_count for node in problem.nodes.values())
    if budget_w is None or idle_w <= budget_w * (1 + BUDGET):
        return ()
    return (f"powerBudgetW: {budget_w:g} W is less than the {idle_w:g} W that the fleet draws idle; no plan keeps it",)


def releasable(problem: Problem, plan: Plan) -> tuple[Releasable, ...]:
    """Nodes that nothing runs on, and what giving them back would save."""
    used = {instance.node for instance in plan.instances} | {job.node for job in plan.jobs}
    return tuple(
        Releasable(name, node.gpu_count * node.price_per_hour)
        for name, node in sorted(problem.nodes.items())
        if name not in used
    )
