"""Carries out a plan on a fleet without planner or database, for benchmarks and evaluations of plans."""

from __future__ import annotations

from collections import defaultdict

from agents.contract.assignments import AssignedGpu, AssignedInstance, Assignment, Frame
from simulation.fleet.fleet import SimulatedFleet
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem


def carry_out(fleet: SimulatedFleet, plan: Plan, generation: int = 1) -> None:
    """Sends every node what the plan assigns to it; a node with an older assignment and no line gets an empty one."""
    problem = fleet.truth.problem
    by_node: dict[str, list[Instance]] = defaultdict(list)
    by_node.update({name: [] for name, node in fleet.nodes.items() if node.memory.assignment is not None})
    for line in plan.instances:
        by_node[line.node].append(line)
    for name, lines in by_node.items():
        clocks = {gpu: line.clock_mhz for line in lines for gpu in line.gpus or (line.gpu,)}
        gpus = tuple(AssignedGpu(gpu, clock_mhz=Frame(mhz, mhz, mhz)) for gpu, mhz in sorted(clocks.items()))
        instances = tuple(assign_line(problem, line) for line in lines)
        fleet.nodes[name].offer(
            Assignment(
                name, 1, generation, generation, instances=instances, gpus=gpus,
                clients_per_gpu=problem.policy.clients_per_gpu,
            )
        )  # fmt: skip


def assign_line(problem: Problem, line: Instance) -> AssignedInstance:
    """Returns one line of a plan as its node receives it."""
    service = problem.services[line.service]
    tenant, _, name = line.service.partition("/")
    return AssignedInstance(
        line.id,
        line.gpu,
        tenant,
        name,
        model=service.model,
        variant=line.variant,
        sm_percent=float(line.sm_percent),
        memory_gib=line.memory_gib,
        batch=Frame(float(line.batch), 1.0, float(line.batch)),
        batch_timeout_ms=line.batch_timeout_ms,
        rate_per_second=line.rate_per_second,
        slo_ms=service.slo_ms,
        percentile=service.percentile,
        tpot_ms=service.tokens.promise.tpot_ms if service.tokens else 0.0,
        gpus=line.gpus,
    )
