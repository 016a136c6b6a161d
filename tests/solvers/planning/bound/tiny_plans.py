"""The least cost of a tiny problem by trying all plans of a coarse grid of SM%, without any code of the planner."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf
from operator import add, ge

import numpy as np

from solvers import latency
from solvers.planning.problem import Curve, Node, Problem, Profile, Service

SMS = (10, 20, 30, 40, 50, 60, 80, 100)
FREE = 1e-9  # the price of a GPU where only what is unserved counts
MOST_STATES = 2000  # of what is served so far: with fewer, the least cost found may be higher
Resident = tuple[Service, Profile, int]  # at an SM%
Served = tuple[float, ...]  # of each service, on how many GPUs each runs, and its largest and second largest instance


def least_unserved(problem: Problem, priority: int) -> float:
    """Returns the least rate of this priority and all above that those plans leave unserved, whatever they cost."""
    weights = {
        name: 100 / service.priority if service.priority >= priority else 0.0
        for name, service in problem.services.items()
    }
    services = {name: replace(service, unserved_weight=weights[name]) for name, service in problem.services.items()}
    nodes = {name: replace(node, price_per_hour=FREE) for name, node in problem.nodes.items()}
    policy = replace(problem.policy, unserved_price=1.0)
    return least_cost(replace(problem, nodes=nodes, services=services, policy=policy), 0.0)


def least_cost(problem: Problem, least: float = 1.0) -> float:
    """Returns the least cost of services over all plans whose SM% are of the grid, with a model once on a GPU at most.

    A service with fewer instances than it asks for is unserved; of two that it asks for, each carries half an even
    share at least. Power is ignored, as the bound ignores it. An unserved rate costs as much as `least` at least.
    """
    services = [problem.services[name] for name in sorted(problem.services)]
    reached: dict[Served, float] = {(0.0,) * (4 * len(services)): 0.0}
    for node in problem.nodes.values():
        options = _worthwhile(fillings(problem, services, node))
        for _ in node.gpus:
            grown = dict(reached)
            for (served, cost), (filling, more) in product(reached.items(), options.items()):
                total = together(services, served, filling)
                grown[total] = min(grown.get(total, inf), cost + more)
            reached = cheapest_states(problem, services, grown, least)
    return min(cost + unserved_cost(problem, services, served, least) for served, cost in reached.items())


def cheapest_states(
    problem: Problem, services: list[Service], reached: dict[Served, float], least: float = 1.0
) -> dict[Served, float]:
    """Returns the states that cost least together with what they leave unserved."""
    value = {served: cost + unserved_cost(problem, services, served, least) for served, cost in reached.items()}
    return {
        served: reached[served] for served in sorted(value, key=lambda served: (value[served], served))[:MOST_STATES]
    }


def together(services: list[Service], one: Served, other: Served) -> Served:
    """Returns what both serve: all of an instance asked for twice counts, of others no more than is asked for."""
    count = len(services)
    if all(service.min_instances != 2 for service in services):
        most = [service.rate_per_second for service in services] + [float(s.min_instances) for s in services]
        return tuple(map(min, map(add, one, other), most)) + one[2 * count :]
    rates = [min(one[i] + other[i], service.rate_per_second) for i, service in enumerate(services)]
    gpus = [one[count + i] + other[count + i] for i in range(count)]
    largest, second = [0.0] * count, [0.0] * count
    for i, service in enumerate(services):
        if service.min_instances == 2:
            _, _, second[i], largest[i] = sorted([part[k + i] for part in (one, other) for k in (2 * count, 3 * count)])
        else:
            gpus[i] = min(gpus[i], float(service.min_instances))
    return (*rates, *gpus, *largest, *second)


def carried_of(services: list[Service], served: Served, number: int) -> float:
    """Returns what a service's instances carry; of two asked for, the smaller carries half an even share of it."""
    count, least = len(services), services[number].min_instances
    gpus, carried = served[count + number], served[number]
    if least == 2:
        carried = min(carried, 2 * gpus * served[3 * count + number])
    return carried if gpus >= least else 0.0


def unserved_cost(problem: Problem, services: list[Service], served: Served, least: float = 1.0) -> float:
    cost = 0.0
    for number, service in enumerate(services):
        missing = service.rate_per_second - carried_of(services, served, number)
        if missing > 0.0:
            cost += problem.policy.price_unserved(service) * max(missing, least)
    return cost


def fillings(problem: Problem, services: list[Service], node: Node) -> dict[Served, float]:
    """Returns what a GPU of a node can carry of each service, which run there, and its cost."""
    choices: list[list[Resident | None]] = [[None, *_choices(problem, service, node)] for service in services]
    found: dict[Served, float] = {}
    for residents in product(*choices):
        present = [(number, resident) for number, resident in enumerate(residents) if resident]
        models = [service.model for _, (service, _, _) in present]
        used = sum(sm for _, (_, _, sm) in present)
        is_alone = any(service.is_dedicated for _, (service, _, _) in present)
        if not present or used > 100 or len(set(models)) < len(models) or (is_alone and len(present) > 1):
            continue
        carried = carried_together(problem, [resident for _, resident in present])
        held = sum(memory for _, memory in carried)
        room = problem.gpu_types[node.gpu_type].memory_gib
        if held > room:
            continue
        served = np.zeros(4 * len(services))
        for (number, (service, _, _)), (rate, _) in zip(present, carried, strict=True):
            served[number] = min(rate, service.rate_per_second)
            served[len(services) + number] = rate > 0.0
            served[2 * len(services) + number] = served[number] if service.min_instances == 2 else 0.0
        is_whole = is_alone or problem.policy.pricing == "gpu"
        cost = node.price_per_hour * (1.0 if is_whole else max(used / 100, held / room))
        key = tuple(served.tolist())
        found[key] = min(found.get(key, inf), cost)
    return found


def _worthwhile(options: dict[Served, float]) -> dict[Served, float]:
    """Leaves out what serves nothing more than another filling at no lower cost."""
    found: dict[Served, float] = {}
    for served, cost in sorted(options.items(), key=lambda item: (item[1], [-part for part in item[0]])):
        if not any(all(map(ge, other, served)) for other in found):
            found[served] = cost
    return found


def _choices(problem: Problem, service: Service, node: Node) -> list[Resident]:
    if service.gpu_types is not None and node.gpu_type not in service.gpu_types:
        return []
    profiles = (problem.profiles.get((service.model, variant, node.gpu_type)) for variant in service.variants)
    return [(service, profile, sm) for profile in profiles if profile for sm in SMS]


def carried_together(problem: Problem, residents: list[Resident]) -> list[tuple[float, float]]:
    """Returns the rate of each resident by its best batch, next to the others, and the memory that this takes."""
    own = [_at(profile.demand.whole_pressure, sm) for _, profile, sm in residents]
    outside = 0.0
    if problem.policy.pricing == "share":
        outside = problem.policy.share_pressure * (100 - sum(sm for _, _, sm in residents)) / 100
    found = []
    for (service, profile, sm), pressure in zip(residents, own, strict=True):
        feels = profile.demand.most_sensitivity
        slow = (1 + feels * (sum(own) - pressure)) * (1 + feels * outside)
        rate, by = 0.0, min(profile.latency_ms)
        for batch, curve in profile.latency_ms.items():
            if curve[0][0] <= sm <= curve[-1][0]:
                more = _rate(problem, service, batch, _at(curve, sm) * slow, rate)
                rate, by = max(rate, more), batch if more > rate else by
        found.append((rate, profile.memory_gib[by]))
    return found


def _rate(problem: Problem, service: Service, batch: int, exec_ms: float, least: float) -> float:
    """Returns the rate of an instance, or 0 if it is surely no more than the least."""
    policy = problem.policy
    most, judged = 1000 * policy.utilization * batch / exec_ms, exec_ms * (1 + policy.exec_margin)
    if most <= least or judged > service.slo_ms:
        return 0.0
    return min(most, latency.max_rate(batch, judged, service.slo_ms, service.percentile)[0])


def _at(curve: Curve, sm: int) -> float:
    return float(np.interp(sm, [point for point, _ in curve], [value for _, value in curve]))
