"""Divides the price of GPUs, and of nodes billed whole, among the instances on them, by weight of SMs and memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from solvers.planning.judge.billing import is_billed_whole, price_of_used
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem


def costs_of_instances(problem: Problem, plan: Plan) -> Mapping[str, float]:
    """Returns the price per hour by instance id: GPUs only, without energy."""
    on: dict[tuple[str, int], list[Instance]] = defaultdict(list)
    for instance in plan.instances:
        is_whole = is_billed_whole(problem.nodes[instance.node], problem.policy)
        on[instance.node, -1 if is_whole else instance.gpu].append(instance)
    # On a node that is paid by GPU, one that holds several pays for each; of a whole node its weight has them all.
    wide = {
        line.id: line.degree for line in plan.instances if not is_billed_whole(problem.nodes[line.node], problem.policy)
    }
    found: dict[str, float] = {}
    for (name, _), residents in on.items():
        node, memory_gib = problem.nodes[name], problem.type_of(name).memory_gib
        weights = [weight(resident, memory_gib) for resident in residents]
        paid = price_of_used(node, problem.policy, 1) * find_used_part(problem, residents, memory_gib)
        for resident, own in zip(residents, weights, strict=True):
            found[resident.id] = paid * own / (sum(weights) or 1.0)
    for name, several in wide.items():
        found |= {name: found[name] * several}
    return found


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """What a service pays an hour, and how much of it is for parts of GPUs that no service uses."""

    per_hour: float = 0.0
    idle_per_hour: float = 0.0


def divide_costs(problem: Problem, plan: Plan) -> Mapping[str, ServiceCost]:
    """Returns what each service pays: what its instances cost together, and the idle part of that."""
    costs, idle = costs_of_instances(problem, plan), find_idle_shares(problem, plan)
    found = dict.fromkeys(problem.services, ServiceCost())
    for line in plan.instances:
        paid, known = costs[line.id], found[line.service]
        found[line.service] = ServiceCost(
            known.per_hour + paid, known.idle_per_hour + paid * idle[line.node, line.gpu]
        )  # fmt: skip
    return found


def find_idle_shares(problem: Problem, plan: Plan) -> Mapping[tuple[str, int], float]:
    """Returns by GPU which share of what is paid for it, or for its node billed whole, no service uses."""
    on: dict[tuple[str, int], list[Instance]] = defaultdict(list)
    for instance in plan.instances:
        for place in instance.places:
            on[place].append(instance)
    filled: dict[str, float] = defaultdict(float)  # GPUs of a node
    found: dict[tuple[str, int], float] = {}
    for (name, gpu), residents in on.items():
        memory_gib = problem.type_of(name).memory_gib
        part = find_filled_part(residents, memory_gib)
        filled[name] += part
        found[name, gpu] = 1.0 - part / (find_used_part(problem, residents, memory_gib) or 1.0)
    for name, gpu in found:
        node = problem.nodes[name]
        if is_billed_whole(node, problem.policy):
            found[name, gpu] = 1.0 - filled[name] / node.gpu_count
    return found


def costs_of_services(problem: Problem, plan: Plan) -> dict[str, float]:
    """Returns the price per hour by service."""
    return {name: cost.per_hour for name, cost in divide_costs(problem, plan).items()}


def weight(instance: Instance, memory_gib: float) -> float:
    """Returns the larger of its parts of the GPU: of SMs, or of memory."""
    return instance.degree * max(instance.sm_percent / 100, instance.memory_gib / memory_gib)


def find_used_part(problem: Problem, residents: list[Instance], memory_gib: float) -> float:
    """Returns the part of a GPU that its services pay: all of it, or where shares are priced what they use."""
    if problem.policy.pricing == "gpu" or any(
        problem.services[resident.service].is_dedicated for resident in residents
    ):
        return 1.0
    return find_filled_part(residents, memory_gib)


def find_filled_part(residents: list[Instance], memory_gib: float) -> float:
    """Returns the part of a GPU that its instances fill: of SMs or of memory, whichever is more."""
    by_sm = sum(resident.sm_percent for resident in residents) / 100
    return min(1.0, max(by_sm, sum(resident.memory_gib for resident in residents) / memory_gib))
