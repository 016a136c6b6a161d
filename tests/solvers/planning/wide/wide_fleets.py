"""Small fleets with language models, for tests of their planner and their judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from solvers.planning.language import IterationCost, LlmSize, TokenLengths, TokenPromise, TokenService
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Node,
    Policy,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
    gpu_indexes,
)

A100 = GpuType("a100", 80.0, 60.0, 400.0, (1410.0,))
CHAT = LlmSize(130.0, 327_680.0, 2048, (4, 8))
SMALL = LlmSize(15.0, 131_072.0, 2048, (1, 2))
COSTS = {
    4: IterationCost(8.0, 0.14, 22.0, 0.04, 0.00005),
    8: IterationCost(9.0, 0.08, 12.0, 0.03, 0.00003),
}
SMALL_COSTS = {1: IterationCost(3.0, 0.055, 9.0, 0.02, 0.00006), 2: IterationCost(4.0, 0.03, 5.0, 0.02, 0.00004)}
TOKENS = TokenService(TokenPromise(2000.0, 60.0, 95.0), TokenLengths(400.0, 900.0, 100.0, 220.0))
DEMAND = Demand(cpu_cores=4.0, host_memory_gib=32.0, power_w=((100, 300.0),))


def chat(rate: float = 1.0, **changes: Any) -> Service:
    """A service on the large model, which needs four GPUs or eight."""
    made = Service("shop/chat", "shop", "chat", ("fp16",), 2000.0, 95.0, rate, tokens=TOKENS)
    return replace(made, **changes)


def summaries(rate: float = 3.0, **changes: Any) -> Service:
    """A service on the small model, for which a GPU is enough."""
    made = Service("shop/summaries", "shop", "small", ("fp16",), 2000.0, 95.0, rate, tokens=TOKENS)
    return replace(made, **changes)


def photos(rate: float = 500.0, **changes: Any) -> Service:
    """An ordinary service."""
    return replace(Service("shop/photos", "shop", "resnet", ("fp16",), 60.0, 98.0, rate), **changes)


def fleet(
    *services: Service,
    nodes: Mapping[str, int] | None = None,
    linked: int = 0,
    policy: Policy | None = None,
    running: tuple[Instance, ...] | None = None,
    **fields: Any,
) -> Problem:
    """Nodes with so many A100 each, at 2 an hour a GPU."""
    made = {
        name: Node(name, "a100", gpu_indexes(count), 64.0, 512.0, 2.0, linked_gpus=linked)
        for name, count in (nodes or {"n1": 8}).items()
    }
    profiles = [
        Profile("chat", "fp16", "a100", {}, {}, DEMAND, 60.0, COSTS, 4.0),
        Profile("small", "fp16", "a100", {}, {}, DEMAND, 60.0, SMALL_COSTS, 4.0),
        Profile("resnet", "fp16", "a100", {8: ((20, 12.0), (60, 6.0), (100, 5.0))}, {8: 4.0}),
    ]
    return Problem(
        gpu_types={"a100": A100},
        nodes=made,
        models={
            "chat": (Variant("fp16", 0.7, llm=CHAT),),
            "small": (Variant("fp16", 0.6, llm=SMALL),),
            "resnet": (Variant("fp16", 0.76),),
        },
        profiles={profile.key: profile for profile in profiles},
        services={service.name: service for service in services},
        policy=policy or Policy(),
        state=None if running is None else RunningState(None, running),
        **fields,
    )


def wide(service: str = "shop/chat", gpus: tuple[int, ...] = (0, 1, 2, 3), **changes: Any) -> Instance:
    """An instance on these GPUs of n1."""
    made = Instance(
        f"{service}/{gpus[0]}", service, "n1", gpus[0], "fp16", 32, 0.0, 100, 80.0, 1410.0, 1.0,
        gpus=gpus if len(gpus) > 1 else (),
    )  # fmt: skip
    return replace(made, **changes)
