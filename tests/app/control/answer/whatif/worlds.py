"""Snapshots of small worlds, as an observer would take them."""

from __future__ import annotations

from typing import Any

from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Snapshot
from tests.solvers.planning.random_problems import NOON

PROFILE = {
    "latencyMs": {"1": {"10": 21.0, "30": 9.0, "100": 7.9}, "8": {"10": 96.0, "30": 34.0, "100": 22.1}},
    "memoryGib": {"1": 1.2, "8": 1.9},
}


def snapshot(**rates: float) -> Snapshot:
    """Two V100s and two cheap T4s, a model profiled on both, and a service of tenant shop for each rate given."""
    declared = [
        _one("GpuType", "v100", memoryGib=16, smCount=80, pricePerHour=1.2, idleW=40, maxW=300, clocksMhz=[1530]),
        _one("GpuType", "t4", memoryGib=16, smCount=40, pricePerHour=0.4, idleW=20, maxW=70, clocksMhz=[1590]),
        _one("Node", "big-1", gpuType="v100", gpus=2, cpuCores=48, memoryGib=256),
        _one("Node", "small-1", gpuType="t4", gpus=2, cpuCores=48, memoryGib=256),
        _one("Policy", "default", mode="auto", pricing="gpu"),
    ]
    for name, rate in rates.items():
        declared += [
            _one("Model", f"m-{name}", variants=[{"name": "fp16", "accuracy": 0.76}]),
            _one("Profile", f"p-{name}-v100", model=f"m-{name}", variant="fp16", gpuType="v100", **PROFILE),
            _one("Profile", f"p-{name}-t4", model=f"m-{name}", variant="fp16", gpuType="t4", **_slower(3.0)),
            DeclaredObject(
                "Service",
                "shop",
                name,
                {"model": f"m-{name}", "slo": {"latencyMs": 80, "percentile": 98}, "ratePerSecond": rate},
            ),
        ]
    return Snapshot(
        at=NOON,
        epoch=1,
        declared=tuple(sorted(declared, key=lambda manifest: (manifest.kind, manifest.tenant, manifest.name))),
        nodes={name: NodeStatus(name, "reporting") for name in ("big-1", "small-1")},
        expected={f"shop/{name}": ExpectedLoad(rate) for name, rate in rates.items()},
    )


def _one(kind: str, name: str, **spec: Any) -> DeclaredObject:
    return DeclaredObject(kind, "", name, spec)


def _slower(times: float) -> dict[str, Any]:
    latency: Any = PROFILE["latencyMs"]
    return {
        "latencyMs": {
            batch: {share: value * times for share, value in curve.items()} for batch, curve in latency.items()
        },
        "memoryGib": PROFILE["memoryGib"],
    }
