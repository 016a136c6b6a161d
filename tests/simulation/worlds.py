"""Small worlds for simulations: few GPUs, few services, figures that can be checked by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.manifests.model import Key
from app.manifests.offline import DeclaredFiles
from app.store.database.database import Database
from app.world.declare import delete
from simulation.shapes import Shape, noisy
from simulation.world import ACTOR, read_documents
from tests.support.soak import scaled

V1 = "gpuwright/v1"
CALM_TICK_SECONDS = 5.0  # of a simulation in which nothing depends on the second
SETTLING_TICK_SECONDS = float(scaled(1, 5))  # before and after what a test is about
Document = dict[str, Any]


def document(kind: str, name: str, spec: Document, tenant: str = "") -> Document:
    metadata = {"name": name, "tenant": tenant} if tenant else {"name": name}
    return {"apiVersion": V1, "kind": kind, "metadata": metadata, "spec": spec}


def gpu_type(name: str = "v100-16gb", price: float = 1.2) -> Document:
    figures = {"memoryGib": 16, "smCount": 80, "idleW": 40, "maxW": 300, "clocksMhz": [1200, 1530]}
    return document("GpuType", name, figures | {"pricePerHour": price})


def node(name: str, gpus: int = 2, kind: str = "v100-16gb") -> Document:
    return document("Node", name, {"gpuType": kind, "gpus": gpus, "cpuCores": 48, "memoryGib": 256})


def model(name: str) -> Document:
    runtime = {"template": "gpuwright-serve", "args": {"model": name}}
    return document(
        "Model", name, {"variants": [{"name": "fp16", "accuracy": 0.76, "paramsM": 25, "runtime": runtime}]}
    )


def profile(name: str, kind: str = "v100-16gb", speed: float = 1.0, **more: Any) -> Document:
    """A batch of 1 takes 8 ms on a whole GPU, one of 8 takes 22."""
    latency = {
        "1": {"10": 21.0 / speed, "40": 8.4 / speed, "100": 7.9 / speed},
        "8": {"10": 96.0 / speed, "40": 27.5 / speed, "100": 22.1 / speed},
    }
    spec = {"model": name, "variant": "fp16", "gpuType": kind, "latencyMs": latency, "memoryGib": {"1": 1.2, "8": 1.9}}
    usual = {"pressure": 0.4, "sensitivity": 0.2, "powerW": {"10": 30, "100": 200}, "startSeconds": 20}
    return document("Profile", f"{name}-{kind}", spec | usual | more)


def service(name: str, rate: float, of: str = "", slo_ms: float = 120, **more: Any) -> Document:
    spec = {"model": of or name, "slo": {"latencyMs": slo_ms, "percentile": 98}, "ratePerSecond": rate}
    return document("Service", name, spec | more, "shop")


ITERATION = {
    "1": {"baseMs": 3, "tokenMs": 0.1, "weightsMs": 9, "sequenceMs": 0.05},
    "2": {"baseMs": 4, "tokenMs": 0.055, "weightsMs": 5, "sequenceMs": 0.04},
}


def chat(parallel: Sequence[int] = (1, 2)) -> list[Document]:
    """Returns a language model of which a GPU carries a few requests a second, and its service."""
    size = {"weightsGib": 4, "layers": 16, "kvBytesPerToken": 65536, "contextTokens": 4096, "parallel": [*parallel]}
    tokens = {"input": {"mean": 600, "p95": 600}, "output": {"mean": 60, "p95": 60}}
    slo = {"ttftMs": 800, "tpotMs": 40, "percentile": 95}
    iteration = {str(degree): ITERATION[str(degree)] for degree in parallel}
    figures = {"model": "chat", "variant": "fp16", "gpuType": "v100-16gb", "overheadGib": 2, "iteration": iteration}
    return [
        document("Model", "chat", {"variants": [{"name": "fp16", "accuracy": 0.6, "llm": size}]}),
        document("Profile", "chat-v100", figures | {"powerW": {"100": 200}, "startSeconds": 20}),
        document("Service", "chat", {"model": "chat", "slo": slo, "ratePerSecond": 3.0, "tokens": tokens}, "shop"),
    ]


def policy(**spec: Any) -> Document:
    return document("Policy", "default", {"mode": "auto"} | spec)


def small(gpus: int = 4, rates: tuple[float, ...] = (200.0, 150.0, 100.0), **rules: Any) -> DeclaredFiles:
    """Services a, b, c on nodes of two GPUs."""
    names = "abcdefgh"[: len(rates)]
    documents = [gpu_type(), policy(**rules)]
    documents += [node(f"node-{number}") for number in range(-(-gpus // 2))]
    for name, rate in zip(names, rates, strict=True):
        documents += [model(name), profile(name), service(name, rate)]
    return read_documents(documents)


def withdraw(database: Database, key: Key) -> None:
    """Deletes a declared manifest."""
    database.write(lambda connection: delete(connection, ACTOR, key))


def all_noisy(shapes: Mapping[str, Shape], sigma: float, seed: int = 0) -> dict[str, Shape]:
    """Adds deviations of its own to each service."""
    return {name: noisy(shape, sigma, f"{seed} {name}") for name, shape in shapes.items()}


def steps(factors: Sequence[float], step_seconds: float) -> Shape:
    """Returns one factor after the other, in a loop."""
    return lambda seconds: factors[int(seconds // step_seconds) % len(factors)]
