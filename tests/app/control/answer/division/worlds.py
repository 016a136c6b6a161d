"""Snapshots of fleets of A100s that may be divided."""

from __future__ import annotations

from typing import Any

from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Snapshot
from tests.solvers.planning.random_problems import NOON

A100 = {"memoryGib": 40, "smCount": 108, "pricePerHour": 2.8, "idleW": 50, "maxW": 400, "clocksMhz": [1410]}
LATENCY = {"4": {"10": 40.0, "25": 18.0, "50": 11.0, "100": 8.0}}


def fleet(services: dict[str, dict[str, Any]], nodes: int = 8, gpus: int = 1, **policy: Any) -> Snapshot:
    """Nodes of A100s, and a service of tenant shop, each on a model of its own, for each spec."""
    declared = [
        declare("GpuType", "a100", **A100),
        declare("Policy", "default", mode="auto", **policy),
        *[declare("Node", f"n{at}", gpuType="a100", gpus=gpus, cpuCores=64, memoryGib=512) for at in range(nodes)],
    ]
    for name, spec in services.items():
        more = dict(spec)
        profile = {"latencyMs": LATENCY, "memoryGib": {"4": 2.0}, **more.pop("profile", {})}
        declared += [
            declare("Model", f"m-{name}", variants=[{"name": "fp16", "accuracy": 0.76}]),
            declare("Profile", f"p-{name}", model=f"m-{name}", variant="fp16", gpuType="a100", **profile),
            DeclaredObject(
                "Service", "shop", name,
                {"model": f"m-{name}", "slo": {"latencyMs": 150, "percentile": 98}, "ratePerSecond": 1.0, **more},
            ),
        ]  # fmt: skip
    return Snapshot(
        at=NOON,
        epoch=1,
        declared=tuple(sorted(declared, key=lambda line: (line.kind, line.tenant, line.name))),
        nodes={f"n{at}": NodeStatus(f"n{at}", "reporting") for at in range(nodes)},
        expected={f"shop/{name}": ExpectedLoad(spec.get("ratePerSecond", 1.0)) for name, spec in services.items()},
    )


def declare(kind: str, name: str, **spec: Any) -> DeclaredObject:
    return DeclaredObject(kind, "", name, spec)


def alone(count: int, **more: Any) -> dict[str, dict[str, Any]]:
    """Services that must be alone on their GPU."""
    return {f"s{at}": {"isolation": "dedicated", **more} for at in range(count)}
