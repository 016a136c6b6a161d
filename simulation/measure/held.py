"""Prices the GPUs that a fleet holds at one moment, and those that the plan in force uses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import fsum
from typing import TypeAlias

from app.control.domain.decision import PlanState
from app.control.domain.leading import FleetView
from app.control.rollout.changes import changes
from simulation.fleet.fleet import SimulatedFleet
from solvers.planning.judge.billing import price_of_used
from solvers.planning.problem import Problem

Seat: TypeAlias = tuple[str, object]  # a node, and a GPU of it


def held_per_hour(fleet: SimulatedFleet, services: Collection[str] | None = None) -> float:
    """Returns the price of the GPUs on which one of these services, or any, has a copy that lives.

    A hand-over holds both sides.
    """
    shares: dict[Seat, list[tuple[float, float]]] = defaultdict(list)
    for node in fleet.nodes.values():
        for copy in node.alive():
            is_counted = copy.served and (services is None or copy.service in services)
            for gpu in copy.devices if is_counted else ():
                shares[node.name, gpu].append((copy.wanted.sm_percent, copy.wanted.memory_gib))
    return price_of(fleet.truth.problem, shares)


def price_planned(problem: Problem, view: FleetView) -> float:
    """Returns the price of the GPUs on which the plan in force has an instance of a service."""
    shares: dict[Seat, list[tuple[float, float]]] = defaultdict(list)
    for name, wanted in view.target.items():
        for instance in wanted.instances:
            for gpu in instance.all_gpus if instance.service and name in problem.nodes else ():
                shares[name, gpu].append((instance.sm_percent, instance.memory_gib))
    return price_of(problem, shares)


def price_of(problem: Problem, shares: Mapping[Seat, Iterable[tuple[float, float]]]) -> float:
    """Returns the price an hour of GPUs with these shares of SMs and memory in use, as policy and nodes price them."""
    if problem.policy.pricing == "gpu":
        gpus = Counter(node for node, _ in shares)
        return fsum(price_of_used(problem.nodes[node], problem.policy, count) for node, count in gpus.items())
    found = []
    for (node, _), used in shares.items():
        sms, memory_gib = (fsum(values) for values in zip(*used, strict=True))
        share = min(1.0, max(sms / 100, memory_gib / problem.type_of(node).memory_gib))
        found.append(problem.nodes[node].price_per_hour * share)
    return fsum(found)


def is_waiting(view: FleetView) -> bool:
    """Returns whether changes of the plan in force wait although no step that could free them is under way.

    A plan that was recorded at this very moment has yet to take its first step.
    """
    plan = view.plan
    if plan is None or plan.state != PlanState.ROLLING or plan.at >= view.at:
        return False
    under_way = any(plan.rollout.get(what) for what in ("pending", "leaving", "canaries"))
    return not under_way and bool(changes(view.assigned, view.target))
