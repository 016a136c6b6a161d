"""What the tour declares: two kinds of simulated GPU on three nodes, one service that stays, and makers of more."""

from __future__ import annotations

from typing import Any

from tests.support.world import gpu_type, manifest, model, profile, service

Document = dict[str, Any]

TYPES = [
    gpu_type(),
    gpu_type(
        "h100-80gb", memoryGib=80, smCount=132, pricePerHour=4.5, idleW=70, maxW=700, clocksMhz=[1005, 1500, 1980]
    ),
]
# Services may run on two nodes, so that each can be left; jobs and language models have another one.
NODES = {"north": "v100-16gb", "south": "v100-16gb", "lake": "h100-80gb"}
LOST_SECONDS = 20.0
POLICY = manifest(
    "Policy",
    "default",
    {
        "mode": "auto", "cycleSeconds": 5, "lostAfterSeconds": LOST_SECONDS, "downSeconds": 5, "pricing": "gpu",
        "sameModelPerGpu": 9, "energyPricePerKwh": 0.3, "idleMinutes": 0, "movePrice": 0.01,
    },
)  # fmt: skip
LATENCY = "1:10=4,100=2;8:10=16,100=6"


def serving(name: str, gpu: str, memory_gib: float = 1.0) -> list[Document]:
    """Returns a model that gpuwright-serve runs, and its profile: lower clocks save much of its power."""
    runtime = {"template": "gpuwright-serve", "args": {"model": name, "latency": LATENCY}}
    return [
        model(name, variants=[{"name": "fp16", "accuracy": 0.9, "runtime": runtime}]),
        profile(
            name, gpu, latencyMs={"1": {"10": 4, "100": 2}, "8": {"10": 16, "100": 6}},
            memoryGib={"1": memory_gib, "8": memory_gib}, startSeconds=2, powerW={"10": 30, "100": 200},
            clockExponent=0.5, powerExponent=2.5,
        ),
    ]  # fmt: skip


def served(name: str, tenant: str, model_name: str = "quick", **spec: Any) -> Document:
    known = {"ratePerSecond": 20, "variants": ["fp16"], "slo": {"latencyMs": 100, "percentile": 95}}
    return service(name, tenant, model_name, **known | spec)


def training(name: str, tenant: str, gpu: str, memory_gib: float) -> Document:
    """Returns a job of gpuwright-train, which saves and goes on from its last save."""
    runtime = {
        "template": "gpuwright-train",
        "args": {"speeds": "10:50,100:50", "steps": 1_000_000, "checkpoint": name},
    }
    how = {"stepsPerSecond": {"10": 50, "100": 50}, "memoryGib": memory_gib}
    return manifest(
        "Job", name, {"type": "training", "steps": 1_000_000, "runtime": runtime, "profiles": {gpu: how},
                      "maxPricePerHour": 10}, tenant,
    )  # fmt: skip


COST = {"baseMs": 1, "weightsMs": 2, "tokenMs": 0.01, "sequenceMs": 0.01, "kvTokenMs": 0.0001}


def language_model(name: str, tenant: str) -> list[Document]:
    """Returns a language model, its profile and a service of it, which the stub of gpuwright-llm runs."""
    cost = ",".join(f"{field}={milliseconds}" for field, milliseconds in COST.items())
    runtime = {"template": "gpuwright-llm", "args": {"model": name, "cost": cost, "kvTokens": 100_000}}
    weights = {"weightsGib": 15, "layers": 32, "kvBytesPerToken": 131072, "contextTokens": 8192, "parallel": [1]}
    variant = {"name": "bf16", "accuracy": 0.7, "llm": weights, "runtime": runtime}
    times = {"model": name, "variant": "bf16", "gpuType": "h100-80gb", "startSeconds": 2, "overheadGib": 4}
    tokens = {"input": {"mean": 100, "p95": 300}, "output": {"mean": 20, "p95": 60}}
    slo = {"ttftMs": 500, "tpotMs": 40, "percentile": 95}
    return [
        manifest("Model", name, {"variants": [variant]}),
        manifest("Profile", f"{name}-bf16-h100", times | {"iteration": {"1": COST}}),
        manifest("Service", name, {"model": name, "slo": slo, "ratePerSecond": 1, "tokens": tokens}, tenant),
    ]


BASE = [*TYPES, POLICY, *serving("quick", "v100-16gb"), served("search", "shop", minInstances=1)]
