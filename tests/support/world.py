"""A small world for tests: two GPU types, an open and a private model, their profiles, a service and a job each."""

from __future__ import annotations

from typing import Any

from tests.support.server import RunningServer

V1 = "gpuwright/v1"


def manifest(kind: str, name: str, spec: dict[str, Any], tenant: str = "", **labels: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if tenant:
        metadata["tenant"] = tenant
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": V1, "kind": kind, "metadata": metadata, "spec": spec}


def gpu_type(name: str = "v100-16gb", **spec: Any) -> dict[str, Any]:
    known = {
        "memoryGib": 16,
        "smCount": 80,
        "pricePerHour": 1.2,
        "idleW": 40,
        "maxW": 300,
        "clocksMhz": [600, 900, 1200, 1530],
    }
    return manifest("GpuType", name, known | spec)


def model(name: str, **spec: Any) -> dict[str, Any]:
    return manifest("Model", name, {"variants": [{"name": "fp16", "accuracy": 0.761, "paramsM": 25.6}]} | spec)


def profile(model_name: str, gpu: str = "v100-16gb", **spec: Any) -> dict[str, Any]:
    known = {
        "model": model_name,
        "variant": "fp16",
        "gpuType": gpu,
        "latencyMs": {"1": {"10": 21.0, "100": 7.9}, "8": {"10": 96.0, "100": 22.1}},
        "memoryGib": {"1": 1.2, "8": 1.9},
    }
    return manifest("Profile", f"{model_name}-fp16-{gpu.split('-')[0]}", known | spec)


def service(name: str, tenant: str, model_name: str = "resnet50", **spec: Any) -> dict[str, Any]:
    known = {
        "model": model_name,
        "variants": ["fp16"],
        "slo": {"latencyMs": 80, "percentile": 98},
        "ratePerSecond": 900,
    }
    return manifest("Service", name, known | spec, tenant)


def job(name: str, tenant: str, **spec: Any) -> dict[str, Any]:
    known = {
        "type": "training",
        "steps": 200000,
        "profiles": {"v100-16gb": {"stepsPerSecond": {"20": 1.1, "100": 3.4}, "memoryGib": 9}},
    }
    return manifest("Job", name, known | spec, tenant)


def node(name: str, gpu: str = "v100-16gb", **spec: Any) -> dict[str, Any]:
    return manifest("Node", name, {"gpuType": gpu, "gpus": 4, "cpuCores": 48, "memoryGib": 256} | spec)


WORLD = [
    gpu_type(),
    gpu_type("t4", memoryGib=16, smCount=40, pricePerHour=0.4),
    node("node-1"),
    model("resnet50"),
    profile("resnet50"),
    model("secret", tenants=["lab"]),
    profile("secret"),
    service("search", "shop"),
    service("classify", "lab", "secret"),
    job("finetune", "lab"),
    manifest("Tenant", "shop", {"limit": {"gpus": 16}}),
    manifest("Policy", "default", {"utilization": 0.8}),
]


def declare_world(server: RunningServer) -> None:
    reply = server.request("POST", "/api/v1/apply", WORLD)
    assert reply.status == 200, reply.text
