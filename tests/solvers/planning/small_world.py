"""A fleet small enough to check by hand, and a valid plan for it that uses every feature of the contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from solvers.planning.plan import Plan, Unplaced, Unserved
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Limit,
    Node,
    PlacedJob,
    Policy,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
)

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
BIG = GpuType("big", memory_gib=16, idle_w=40, max_w=300, clocks_mhz=(600, 1200))
OLD = GpuType("old", memory_gib=8, idle_w=20, max_w=100, clocks_mhz=(1000,))
DEMAND = Demand(
    cpu_cores=2,
    host_memory_gib=4,
    pressure=((10, 0.1), (100, 1.0)),
    sensitivity=0.2,
    power_w=((10, 20), (100, 110)),
    clock_exponent=1.0,
    power_exponent=2.0,
)
# At 40 SM%: 10 ms for a batch of 1, 16 ms for one of 4.
LATENCY = {1: ((20, 20.0), (40, 10.0), (80, 8.0)), 4: ((20, 32.0), (40, 16.0), (80, 12.0))}
MEMORY = {1: 1.0, 4: 2.0}
TRAINING = Demand(cpu_cores=1, host_memory_gib=2, pressure=((100, 0.2),), sensitivity=0.1, power_w=((100, 30),))


def profile(model: str, variant: str, gpu_type: str) -> Profile:
    return Profile(model, variant, gpu_type, LATENCY, MEMORY, DEMAND)


def service(name: str, model: str, **fields: Any) -> Service:
    return replace(Service(name, "shop", model, ("v",), slo_ms=200, percentile=98, rate_per_second=40), **fields)


def instance(service: str, node: str, gpu: int, **fields: Any) -> Instance:
    id_ = f"{service}-{node}-{gpu}"
    return replace(Instance(id_, service, node, gpu, "v", 4, 0.0, 40, 2.0, 1200, 20.0), **fields)


def problem(**policy: Any) -> Problem:
    nodes = [
        Node("n1", "big", (0, 1), cpu_cores=16, host_memory_gib=64, price_per_hour=2),
        Node("n2", "big", (0, 1), cpu_cores=16, host_memory_gib=64, price_per_hour=2, templates=frozenset({"serve"})),
        Node("n3", "old", (0, 1), cpu_cores=8, host_memory_gib=16, price_per_hour=1, purchase="owned"),
        Node("n4", "old", (0,), cpu_cores=8, host_memory_gib=16, price_per_hour=1),
    ]
    models = {
        "m": (Variant("v", 0.8, "serve"), Variant("w", 0.7)),
        "k": (Variant("v", 0.8, "other"),),
        "d": (Variant("v", 0.8),),
    }
    profiles = [
        *(profile(model, "v", "big") for model in models),
        profile("m", "w", "big"),
        profile("m", "v", "old"),
    ]
    services = [
        service("shop/search", "m", min_instances=2, gpu_types=("big",)),
        service("shop/rank", "k", rate_per_second=30),
        service("lab/alone", "d", tenant="lab", rate_per_second=20, is_dedicated=True),
    ]
    speeds = {"big": JobProfile(((20, 1.0), (60, 3.0)), 4, TRAINING), "old": JobProfile(((20, 1.0),), 4, TRAINING)}
    jobs = [
        Job("lab/tune", "lab", "training", 1000, speeds, deadline=NOON),
        Job("lab/slow", "lab", "training", 1000, speeds),
        Job("lab/late", "lab", "training", 10**9, speeds, deadline=NOON),
    ]
    return Problem(
        gpu_types={"big": BIG, "old": OLD},
        nodes={node.name: node for node in nodes},
        models=models,
        profiles={profile.key: profile for profile in profiles},
        services={service.name: service for service in services},
        jobs={job.name: job for job in jobs},
        policy=Policy(**policy),
        limits={"shop": Limit(gpus=2, price_per_hour=4)},
        state=RunningState(now=NOON.replace(hour=11)),
    )


def plan() -> Plan:
    """search on two GPUs, one shared with rank and with a job; alone by itself; another job on an owned GPU."""
    return Plan(
        instances=(
            instance("shop/search", "n1", 0),
            instance("shop/search", "n1", 1),
            instance("shop/rank", "n1", 1),
            instance("lab/alone", "n2", 0),
        ),
        jobs=(PlacedJob("lab/tune", "n1", 0, 40, 4), PlacedJob("lab/slow", "n3", 0, 20, 4)),
        unserved=(Unserved("shop/rank", 10.0, "the limit"),),
        unplaced=(Unplaced("lab/late", "too late"),),
    )
