"""Divides the price of GPUs, and of nodes billed whole, among the instances on them, by weight of SMs and memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

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


def costs_of_services(problem: Problem, plan: Plan) -> Mapping[str, float]:
    """Returns the price per hour by service: what its instances cost together."""
    of = costs_of_instances(problem, plan)
    found: dict[str, float] = dict.fromkeys(problem.services, 0.0)
    for instance in plan.instances:
        found[instance.service] += of[instance.id]
    return found


def weight(instance: Instance, memory_gib: float) -> float:
    """Returns the larger of its parts of the GPU: of SMs, or of memory."""
    return instance.degree * max(instance.sm_percent / 100, instance.memory_gib / memory_gib)


def find_used_part(problem: Problem, residents: list[Instance], memory_gib: float) -> float:
    """Returns the part of a GPU that its services pay: all of it, or where shares are priced what they use."""
    if problem.policy.pricing == "gpu" or any(
        problem.services[resident.service].is_dedicated for resident in residents
    ):
        return 1.0
    by_sm = sum(resident.sm_percent for resident in residents) / 100
    return min(1.0, max(by_sm, sum(resident.memory_gib for resident in residents) / memory_gib))
