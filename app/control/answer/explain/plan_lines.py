"""Adapts recorded plans to today's problem: drops what the problem leaves out, adds missing predictions."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


def drop_left_out(problem: Problem, plan: Plan) -> Plan:
    """Returns the plan without the lines on GPUs and of services that the problem leaves out."""
    places = {(node.name, index) for node in problem.nodes.values() for index in node.gpus}
    services = problem.services
    return replace(
        plan,
        instances=tuple(line for line in plan.instances if places.issuperset(line.places) and line.service in services),
        jobs=tuple(line for line in plan.jobs if line.place in places),
        unserved=tuple(line for line in plan.unserved if line.service in services),
    )


def add_predictions(problem: Problem, plan: Plan) -> Plan:
    """Returns the plan with a prediction for every line: lines that were taken over while running have none."""
    bare = [line for line in plan.instances if line.exec_ms <= 0 and line.tpot_ms <= 0]
    places = {line.place for line in bare if problem.services[line.service].tokens is None}
    places |= {job.place for job in plan.jobs if job.units_per_second <= 0}
    if not (bare or places) or not _is_profiled(problem, plan):
        return plan
    # Compiled loops: only where they are needed.
    from solvers.planning.fleet.predictions import predict_again
    from solvers.planning.fleet.token_shapes import predicted

    instances, jobs = predict_again(problem, plan.instances, plan.jobs, places)
    lines = (
        predicted(problem, service, line) if service.tokens and line.tpot_ms <= 0 else line
        for line in instances
        for service in [problem.services[line.service]]
    )
    return replace(plan, instances=tuple(lines), jobs=tuple(jobs))


def _is_profiled(problem: Problem, plan: Plan) -> bool:
    """Returns whether every line has a profile where it runs; what has changed or ended since may have none."""
    return all(
        problem.profile(instance.service, instance.variant, instance.node) is not None for instance in plan.instances
    ) and all(
        job.job in problem.jobs and problem.nodes[job.node].gpu_type in problem.jobs[job.job].profiles
        for job in plan.jobs
    )
