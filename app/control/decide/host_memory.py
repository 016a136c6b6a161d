"""Chooses the preempted jobs whose processes wait in the host memory of their nodes (Mudi's M8).

A job whose manifest says `swap` is not ended when it leaves its GPU. Its process waits where it ran, its GPU memory in
host memory, while nothing that is planned needs that. So it goes on without a start, and repeats nothing. What it
leaves on the GPU, its CUDA context, has to fit there. On a node that is silent or cordoned nothing is planned, so that
what waits there goes on waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from agents.contract.assignments import AssignedInstance
from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import job_tables, may_swap
from app.control.formulate.question import Question
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Place, PlacedJob, Problem

OVER = ("finished", "failed")
LEFT_GIB = 1.0  # of its GPU's memory, that a swapped process may still hold


def jobs_in_host_memory(
    snapshot: Snapshot, question: Question, plan: Plan, specs: Mapping[tuple[str, str, str], Mapping[str, object]]
) -> dict[str, list[AssignedInstance]]:
    """Returns, by node, the preempted jobs that wait in its host memory, the most important first."""
    problem = question.problem
    running = {placed.job for placed in plan.jobs} | {line.owner for _, line in question.pinned if line.job}
    found: dict[str, list[AssignedInstance]] = defaultdict(list)
    candidates = sorted(_candidates(snapshot, problem), key=lambda entry: (-entry[1].priority, entry[1].id))
    free_gib = _free_gib(problem, plan) if candidates else {}
    planned_on = {(node, line.gpu) for node, line in candidates if node in problem.nodes}
    gpu_free_gib = {place: _gpu_free_gib(problem, plan, place) for place in planned_on}
    for node, line in candidates:
        spec = specs.get(("Job", line.tenant, line.job))
        progress = snapshot.jobs.get(line.owner)
        if spec is None or not may_swap(spec) or line.owner in running or (progress and progress.phase in OVER):
            continue
        if node not in problem.nodes:
            running.add(line.owner)
            found[node].append(line)
            continue
        tables = job_tables(spec)
        kind = problem.nodes[node].gpu_type
        host_gib = float(tables[kind][1].get("hostMemoryGib", 0.0)) if kind in tables else 0.0
        needed_gib = host_gib + line.memory_gib
        if needed_gib <= free_gib[node] and gpu_free_gib[node, line.gpu] >= LEFT_GIB:
            free_gib[node] -= needed_gib
            gpu_free_gib[node, line.gpu] -= LEFT_GIB
            running.add(line.owner)
            found[node].append(line)
    return found


def _candidates(snapshot: Snapshot, problem: Problem) -> Iterator[tuple[str, AssignedInstance]]:
    """Yields the jobs that may wait in host memory, with their nodes: they run, or wait there already."""
    for node, wanted in sorted(snapshot.assignments.items()):
        facts = snapshot.nodes.get(node)
        if facts is None or facts.state not in ("reporting", "silent"):
            continue
        leaving = {*facts.failed_gpus, *facts.draining_gpus}
        running = wanted.instances if node in problem.nodes else ()
        for line in (*running, *wanted.swapped):
            if line.job and not line.is_wide and leaving.isdisjoint(line.all_gpus):
                yield node, line


def _gpu_free_gib(problem: Problem, plan: Plan, place: Place) -> float:
    """Returns the memory of a GPU that nothing planned uses."""
    lines: list[Instance | PlacedJob] = [*plan.instances, *plan.jobs]
    return problem.type_at(place).memory_gib - sum(line.memory_gib for line in lines if place in line.places)


def _free_gib(problem: Problem, plan: Plan) -> dict[str, float]:
    """Returns the host memory of each node that nothing planned uses."""
    free_gib = {name: node.host_memory_gib for name, node in problem.nodes.items()}
    for instance in plan.instances:
        if profile := problem.profile(instance.service, instance.variant, instance.node):
            free_gib[instance.node] -= profile.demand.host_memory_gib
    for placed in plan.jobs:
        profiles = problem.jobs[placed.job].profiles
        free_gib[placed.node] -= profiles[problem.nodes[placed.node].gpu_type].demand.host_memory_gib
    return free_gib
