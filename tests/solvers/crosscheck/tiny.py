"""Tiny problems with every feature of the contract, on which the exact model answers within a second or so."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from solvers.planning.availability import Availability
from solvers.planning.problem import Curve, Node, Problem, Profile, Service
from tests.solvers.planning.random_problems import random_problem

FEW_GPUS = 2  # of a node
NODES = 2
SERVICES = 3
LEAST_SM, MOST_SM = 28, 40  # two or three residents fit


def tiny_problem(seed: int) -> Problem:
    """A random problem cut to few GPUs and services; no jobs and no energy, which the exact model leaves out."""
    r = Random(f"{seed} tiny")
    problem = random_problem(seed)
    nodes = dict(list(problem.nodes.items())[:NODES])
    types = {node.gpu_type for node in nodes.values()}
    services = dict(list(problem.services.items())[:SERVICES])
    return replace(
        problem,
        nodes={name: replace(node, gpus=node.gpus[:FEW_GPUS]) for name, node in nodes.items()},
        profiles={key: _narrow(profile) for key, profile in problem.profiles.items() if key[2] in types},
        services={name: _available(r, service, nodes) for name, service in services.items()},
        jobs={},
        policy=replace(problem.policy, energy_price_per_kwh=0.0, power_budget_w=None),
        state=None,
    )


def _narrow(profile: Profile) -> Profile:
    """The same profile over few SM%."""
    curves = {batch: _rescaled(curve) for batch, curve in profile.latency_ms.items()}
    return replace(profile, latency_ms=curves, memory_gib=profile.memory_gib)


def _rescaled(curve: Curve) -> Curve:
    first, last = curve[0][0], curve[-1][0]
    return tuple((LEAST_SM + round((sm - first) * (MOST_SM - LEAST_SM) / (last - first)), value) for sm, value in curve)


def _available(r: Random, service: Service, nodes: dict[str, Node]) -> Service:
    if r.random() < 0.75:
        return service
    rules = r.choice(
        [Availability(spread="node"), Availability(survive_nodes=1), Availability(max_spot_share=0.5)]
    )  # fmt: skip
    least = max(service.min_instances, 2) if rules.spread == "node" else service.min_instances
    return replace(service, availability=rules, min_instances=least)
