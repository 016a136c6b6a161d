"""Plans as problems count: the indexes of GPUs that are planned on, from those that nodes use."""

from __future__ import annotations

from dataclasses import replace

from app.control.formulate.question import Posed
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


def counted(posed: Posed, plan: Plan) -> Plan:
    """A recorded plan on the problem's indexes, without what stands on GPUs that the problem leaves out."""
    at = {(node, real): index for node, gpus in posed.gpus.items() for index, real in enumerate(gpus)}
    services = posed.problem.services
    return replace(
        plan,
        instances=tuple(
            replace(one, gpu=at[one.place]) for one in plan.instances if one.place in at and one.service in services
        ),
        jobs=tuple(replace(one, gpu=at[one.place]) for one in plan.jobs if one.place in at),
        unserved=tuple(one for one in plan.unserved if one.service in services),
    )


def predicted(problem: Problem, plan: Plan) -> Plan:
    """The plan with its predictions: lines that were taken over as they ran have none."""
    places = {one.place for one in plan.instances if one.exec_ms <= 0}
    places |= {one.place for one in plan.jobs if one.units_per_second <= 0}
    if not places or not _is_profiled(problem, plan):
        return plan
    from solvers.planning.explain.applied import renewed  # compiled loops: only where they are needed

    instances, jobs = renewed(problem, plan.instances, plan.jobs, places)
    return replace(plan, instances=tuple(instances), jobs=tuple(jobs))


def _is_profiled(problem: Problem, plan: Plan) -> bool:
    """Whether all of it is known where it runs: what has changed or ended since may not be."""
    return all(problem.profile(one.service, one.variant, one.node) is not None for one in plan.instances) and all(
        one.job in problem.jobs and problem.nodes[one.node].gpu_type in problem.jobs[one.job].profiles
        for one in plan.jobs
    )
