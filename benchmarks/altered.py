"""Alters a problem: bills it in another way, or moves the rates of its services."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from app.manifests.prices import pays_whole_node
from solvers.planning.problem import Problem

Pricing: TypeAlias = Literal["gpu", "node", "share"]

MOVED_SHARE = 0.3  # of a rate, at most, up or down


def set_pricing(problem: Problem, pricing: Pricing) -> Problem:
    """Returns the problem under this pricing, as if its policy declared it."""
    nodes = {
        name: replace(node, pricing="node" if pays_whole_node(pricing, node.purchase) else "gpu")
        for name, node in problem.nodes.items()
    }
    policy = replace(problem.policy, pricing="share" if pricing == "share" else "gpu")
    return replace(problem, nodes=nodes, policy=policy)


def move_rates(problem: Problem, seed: int, share: float = MOVED_SHARE) -> Problem:
    """Returns the problem with each service's rate moved by a share of its own, always the same for a seed."""
    names = sorted(problem.services)
    factors = np.random.default_rng(seed).uniform(1 - share, 1 + share, size=len(names))
    rates = {
        name: problem.services[name].rate_per_second * float(factor)
        for name, factor in zip(names, factors, strict=True)
    }
    return problem.change_rates(rates)
