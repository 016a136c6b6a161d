"""Reads the plan in force in the terms of today's problem: running instances, pinned instances, unserved load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired
from app.control.domain.snapshot import NodeStatus, Snapshot
from solvers.planning.judge.adapters import find_unheld_adapters
from solvers.planning.plan import Plan, list_unserved
from solvers.planning.problem import Instance, PlacedJob, Problem, Service


def running_plan(problem: Problem) -> Plan:
    """Returns the running instances as a plan; the part of today's rates that they do not carry is unserved."""
    running = problem.state.running if problem.state else ()
    return Plan(running, problem.state.jobs if problem.state else (), list_unserved(problem, running))


def lower_to_todays_rates(problem: Problem, plan: Plan) -> Plan:
    """Returns the plan with less on every instance of a service whose rate has fallen below what they carry.

    The gateway splits what arrives by the same weights: a rate that falls breaks no rule.
    """
    carried = dict.fromkeys(problem.services, 0.0)
    for line in plan.instances:
        carried[line.service] += line.rate_per_second
    fallen = {
        name: service.rate_per_second / carried[name]
        for name, service in problem.services.items()
        if carried[name] > service.rate_per_second
    }
    if not fallen:
        return plan
    lines = tuple(
        replace(line, rate_per_second=line.rate_per_second * fallen[line.service]) if line.service in fallen else line
        for line in plan.instances
    )
    return replace(plan, instances=lines)


def running_instances(desired: Desired, problem: Problem) -> tuple[tuple[Instance, ...], tuple[PlacedJob, ...]]:
    """Returns the instances and jobs that the plan in force has on the problem's GPUs."""
    running, jobs = [], []
    for node, wanted in sorted(desired.items()):
        if node not in problem.nodes:
            continue
        gpus = problem.nodes[node].gpus
        clocks = {gpu.index: gpu.clock_mhz.planned for gpu in wanted.gpus if gpu.clock_mhz}
        for assigned in wanted.instances:
            if not set(assigned.all_gpus).issubset(gpus):
                continue
            name = assigned.owner
            if assigned.job and _is_profiled(name, problem, node):
                jobs.append(_job(assigned, name, node))
            elif assigned.service and _still_fits(assigned, problem.services.get(name), problem, node):
                clock_mhz = clocks.get(assigned.gpu, problem.type_of(node).top_clock_mhz)
                running.append(_instance(assigned, name, node, clock_mhz))
    return tuple(running), tuple(jobs)


def list_swapped_jobs(desired: Desired, problem: Problem) -> tuple[PlacedJob, ...]:
    """Returns the jobs of the problem that wait in host memory beside one of its GPUs, as they ran there."""
    return tuple(
        _job(line, line.owner, node)
        for node, wanted in sorted(desired.items())
        for line in wanted.swapped
        if node in problem.nodes and set(line.all_gpus).issubset(problem.nodes[node].gpus)
        if _is_profiled(line.owner, problem, node)
    )


def _is_profiled(job: str, problem: Problem, node: str) -> bool:
    return job in problem.jobs and problem.nodes[node].gpu_type in problem.jobs[job].profiles


def _job(assigned: AssignedInstance, name: str, node: str) -> PlacedJob:
    several = assigned.gpus if assigned.is_wide else ()
    return PlacedJob(name, node, assigned.gpu, round(assigned.sm_percent), assigned.memory_gib, gpus=several)


def _instance(assigned: AssignedInstance, name: str, node: str, clock_mhz: float) -> Instance:
    return Instance(
        id=assigned.id,
        service=name,
        node=node,
        gpu=assigned.gpu,
        variant=assigned.variant,
        batch=int(assigned.batch.planned) if assigned.batch else 1,
        batch_timeout_ms=assigned.batch_timeout_ms,
        sm_percent=round(assigned.sm_percent),
        memory_gib=assigned.memory_gib,
        clock_mhz=clock_mhz,
        rate_per_second=assigned.rate_per_second,
        gpus=assigned.gpus if assigned.is_wide else (),
    )


def _still_fits(assigned: AssignedInstance, service: Service | None, problem: Problem, node: str) -> bool:
    """Returns whether the problem still allows this instance: its service's manifest may have changed."""
    if service is None or assigned.variant not in service.variants or service.model != assigned.model:
        return False
    profile = problem.profile(service.name, assigned.variant, node)
    if service.tokens is not None:
        if profile is None or find_unheld_adapters(profile, service):
            return False
        return len(assigned.all_gpus) in profile.iteration and assigned.batch is not None
    return profile is not None and assigned.batch is not None and int(assigned.batch.planned) in profile.latency_ms


def list_pinned_instances(snapshot: Snapshot) -> tuple[tuple[str, AssignedInstance], ...]:
    """Returns the (node, instance) pairs that stay as they are: on cordoned and resting GPUs, and on silent nodes."""
    found = []
    owners = {(item.kind, item.tenant, item.name) for item in snapshot.declared if item.kind in ("Service", "Job")}
    for node, wanted in sorted(snapshot.in_force.items()):
        facts = snapshot.nodes.get(node)
        if facts is None or facts.state in ("lost", "never"):
            continue
        gone = {*facts.failed_gpus, *facts.draining_gpus}
        staying = [
            assigned
            for assigned in wanted.instances
            if gone.isdisjoint(assigned.all_gpus) and _owner(assigned) in owners
        ]
        found += [
            (node, assigned)
            for assigned in staying
            if facts.state != "reporting"
            or not {*facts.cordoned_gpus, *facts.resting_gpus}.isdisjoint(assigned.all_gpus)
        ]
    return tuple(found)


def _owner(assigned: AssignedInstance) -> tuple[str, str, str]:
    return (
        ("Service", assigned.tenant, assigned.service) if assigned.service else ("Job", assigned.tenant, assigned.job)
    )


def treat_drains_as_cordons(
    nodes: Mapping[str, NodeStatus], *, but_reclaimed: bool = False
) -> Mapping[str, NodeStatus]:  # fmt: skip
    """Returns the nodes with their draining GPUs merely cordoned, so that what runs there still counts.

    `but_reclaimed`: on nodes that will be reclaimed it does not count, as it is gone soon.
    """
    return {
        name: facts
        if but_reclaimed and facts.reclaimed_at is not None
        else replace(facts, cordoned_gpus=(*facts.cordoned_gpus, *facts.draining_gpus), draining_gpus=())
        for name, facts in nodes.items()
    }
