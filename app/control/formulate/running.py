"""What runs, as the problem of today sees it: what counts as standing, what is pinned, and the plan in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agents.contract import AssignedInstance
from app.control.domain.desired import Desired
from app.control.domain.snapshot import NodeStatus, Snapshot
from solvers.planning.plan import Plan, unserved_rest
from solvers.planning.problem import Instance, PlacedJob, Problem, Service


def running_plan(problem: Problem) -> Plan:
    """What runs, as a plan; what it does not carry of today's rates is unserved."""
    running = problem.state.running if problem.state else ()
    return Plan(running, problem.state.jobs if problem.state else (), unserved_rest(problem, running))


def running_instances(desired: Desired, problem: Problem) -> tuple[tuple[Instance, ...], tuple[PlacedJob, ...]]:
    """What the plan in force wants of the GPUs that the problem has, in the problem's words."""
    running, jobs = [], []
    for node, wanted in sorted(desired.items()):
        if node not in problem.nodes:
            continue
        gpus = problem.nodes[node].gpus
        clocks = {gpu.index: gpu.clock_mhz.planned for gpu in wanted.gpus if gpu.clock_mhz}
        for one in wanted.instances:
            if one.gpu not in gpus:
                continue
            name = one.owner
            if one.job and name in problem.jobs and problem.nodes[node].gpu_type in problem.jobs[name].profiles:
                jobs.append(PlacedJob(name, node, one.gpu, round(one.sm_percent), one.memory_gib))
            elif one.service and _still_fits(one, problem.services.get(name), problem, node):
                clock_mhz = clocks.get(one.gpu, problem.type_of(node).top_clock_mhz)
                running.append(_instance(one, name, node, clock_mhz))
    return tuple(running), tuple(jobs)


def _instance(one: AssignedInstance, name: str, node: str, clock_mhz: float) -> Instance:
    return Instance(
        id=one.id,
        service=name,
        node=node,
        gpu=one.gpu,
        variant=one.variant,
        batch=int(one.batch.planned) if one.batch else 1,
        batch_timeout_ms=one.batch_timeout_ms,
        sm_percent=round(one.sm_percent),
        memory_gib=one.memory_gib,
        clock_mhz=clock_mhz,
        rate_per_second=one.rate_per_second,
    )


def _still_fits(one: AssignedInstance, service: Service | None, problem: Problem, node: str) -> bool:
    """Whether an instance is one that the problem could have: a changed manifest may have made it a stranger."""
    if service is None or one.variant not in service.variants or service.model != one.model:
        return False
    profile = problem.profile(service.name, one.variant, node)
    return profile is not None and one.batch is not None and int(one.batch.planned) in profile.latency_ms


def pinned_instances(snapshot: Snapshot) -> tuple[tuple[str, AssignedInstance], ...]:
    """What stands where nothing new comes and nothing is lost either."""
    found = []
    owners = {(one.kind, one.tenant, one.name) for one in snapshot.declared if one.kind in ("Service", "Job")}
    for node, wanted in sorted(snapshot.in_force.items()):
        facts = snapshot.nodes.get(node)
        if facts is None or facts.state in ("lost", "never"):
            continue
        gone = {*facts.failed_gpus, *facts.draining_gpus}
        kept = [one for one in wanted.instances if one.gpu not in gone and _owner(one) in owners]
        found += [(node, one) for one in kept if facts.state != "reporting" or one.gpu in facts.cordoned_gpus]
    return tuple(found)


def _owner(one: AssignedInstance) -> tuple[str, str, str]:
    return ("Service", one.tenant, one.service) if one.service else ("Job", one.tenant, one.job)


def without_drains(nodes: Mapping[str, NodeStatus]) -> Mapping[str, NodeStatus]:
    """Nodes of which nothing has to leave: what stands where GPUs are drained counts, as where they are cordoned."""
    return {
        name: replace(facts, cordoned_gpus=(*facts.cordoned_gpus, *facts.draining_gpus), draining_gpus=())
        for name, facts in nodes.items()
    }
