"""A fleet of four fast and four slow GPUs, with two services."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from solvers.planning.problem import Demand, GpuType, Node, Policy, Problem, Profile, Service, Variant

FAST = {8: ((20, 40.0), (40, 20.0), (100, 10.0))}
SLOW = {8: ((20, 120.0), (40, 60.0), (100, 30.0))}
DEMAND = Demand(cpu_cores=1, host_memory_gib=1, pressure=((10, 0.1), (100, 0.6)), sensitivity=0.25)


def fleet(rate: float = 400.0, slow_price: float = 0.2, **fields: Any) -> Problem:
    nodes = [
        *(Node(f"fast-{n}", "fast", (0, 1), 16, 64, 2.0) for n in range(2)),
        *(Node(f"slow-{n}", "slow", (0, 1), 16, 64, slow_price) for n in range(2)),
    ]
    kinds = [GpuType("fast", 32, 40, 300, (1500.0,)), GpuType("slow", 16, 10, 150, (1500.0,))]
    services = [Service(f"shop/{model}", "shop", model, ("v",), 200, 98, rate) for model in ("a", "b")]
    profiles = [
        Profile(model, "v", kind, latency, {8: 3.0}, DEMAND)
        for model in ("a", "b")
        for kind, latency in (("fast", FAST), ("slow", SLOW))
    ]
    return Problem(
        gpu_types={kind.name: kind for kind in kinds},
        nodes={node.name: node for node in nodes},
        models={model: (Variant("v", 0.8),) for model in ("a", "b")},
        profiles={profile.key: profile for profile in profiles},
        services={service.name: replace(service, **fields) for service in services},
        policy=Policy(planner="hetsev"),
    )
