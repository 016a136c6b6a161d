"""Builds the manifests: A100s and H100s at splitwise's prices, two models with measured coefficients, two services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from lab.data.missing_data import DataMissing
from lab.llm_fleet.catalogue import GPU_PRICES, GPU_TYPES, GPUS_PER_NODE, OVERHEAD_GIB, PROMPT_PARTS
from lab.llm_fleet.measured import fit_all
from lab.rag.operators import fit_operators
from solvers.llm.iteration import IterationCost, TokenLengths

Document: TypeAlias = dict[str, Any]
Costs: TypeAlias = Mapping[str, Mapping[int, IterationCost]]  # by GPU type and parallel degree

TENANT = "rag"
SYSTEMS = {"a100-80gb": "a100_sxm", "h100-80gb": "h100_sxm"}  # GPU types, and what aiconfigurator calls them
NODES = 8  # of each GPU type
CONTEXT_TOKENS = 8192  # the trace's longest request has 7,712 tokens in
TTFT_MS, TPOT_MS, PERCENTILE = 1000.0, 50.0, 99.0
TWIN_70B = "llama2-70b"  # measured by splitwise; layers, widths and heads are those of Llama-3.1-70B
DEGREES_70B = (4, 8)
COEFFICIENTS = {
    "base_ms": "baseMs", "token_ms": "tokenMs", "weights_ms": "weightsMs", "sequence_ms": "sequenceMs",
    "kv_token_ms": "kvTokenMs", "prompt_pair_ms": "promptPairMs",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RagModel:
    """A model and its service."""

    name: str
    service: str
    weights_gib: float
    layers: int
    kv_bytes_per_token: int
    start_seconds: float  # as examples/rag.yaml declares it

    @property
    def full_name(self) -> str:
        return f"{TENANT}/{self.service}"


MODELS = {
    "8b": RagModel("llama-8b", "drafts", 15.0, 32, 131_072, 40.0),
    "70b": RagModel("llama-70b", "answers", 132.0, 80, 327_680, 90.0),
}


def measured_costs(data: Path, size: str) -> Costs:
    """Returns the coefficients of a model's iterations: fitted to splitwise's runs, or composed from operators."""
    if size == "8b":
        return {gpu: {1: fit_operators(data, system)[0]} for gpu, system in SYSTEMS.items()}
    fits = fit_all(data)
    found = {
        gpu: {degree: fits[TWIN_70B, gpu, degree].cost for degree in DEGREES_70B if (TWIN_70B, gpu, degree) in fits}
        for gpu in SYSTEMS
    }
    if not any(found.values()):
        raise DataMissing(f"{TWIN_70B} was not measured on any of {', '.join(SYSTEMS)}")
    return {gpu: costs for gpu, costs in found.items() if costs}


def documents(
    costs: Mapping[str, Costs], lengths: TokenLengths, rate_per_second: float, nodes: int = NODES
) -> list[Document]:
    """Returns the manifests of a fleet with GPUs enough, and of the service of each model, by its size."""
    policy = {"pricing": "gpu", "mode": "auto"}
    found = [_document("Policy", "default", policy), *_fleet(nodes)]
    for size, by_gpu in costs.items():
        found += _model(MODELS[size], by_gpu)
        found.append(_service(MODELS[size], lengths, rate_per_second))
    return found


def _document(kind: str, name: str, spec: Mapping[str, Any], tenant: str = "") -> Document:
    metadata = {"name": name} | ({"tenant": tenant} if tenant else {})
    return {"apiVersion": "gpuwright/v1", "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _fleet(nodes: int) -> list[Document]:
    found = []
    for name in SYSTEMS:
        gpu = GPU_TYPES[name]
        figures = {
            "memoryGib": gpu.memory_gib, "smCount": 108, "pricePerHour": GPU_PRICES[name], "idleW": gpu.idle_w,
            "maxW": gpu.max_w, "clocksMhz": list(gpu.clocks_mhz),
        }  # fmt: skip
        found.append(_document("GpuType", name, figures))
        node = {"gpuType": name, "gpus": GPUS_PER_NODE, "cpuCores": 128, "memoryGib": 2048}
        found += [_document("Node", f"{name[:4]}-{number}", node) for number in range(nodes)]
    return found


def _model(model: RagModel, by_gpu: Costs) -> list[Document]:
    degrees = sorted({degree for costs in by_gpu.values() for degree in costs})
    size = {
        "weightsGib": model.weights_gib, "layers": model.layers, "kvBytesPerToken": model.kv_bytes_per_token,
        "contextTokens": CONTEXT_TOKENS, "parallel": degrees,
    }  # fmt: skip
    variants = [{"name": variant_of(tokens), "accuracy": 0.8, "llm": size} for tokens in PROMPT_PARTS]
    found = [_document("Model", model.name, {"variants": variants})]
    for gpu, costs in by_gpu.items():
        above_idle_w = GPU_TYPES[gpu].max_w - GPU_TYPES[gpu].idle_w
        for tokens in PROMPT_PARTS:
            spec = {
                "model": model.name, "variant": variant_of(tokens), "gpuType": gpu, "overheadGib": OVERHEAD_GIB,
                "startSeconds": model.start_seconds, "tokensPerIteration": tokens, "powerW": {"100": above_idle_w},
                "iteration": {str(degree): _coefficients(cost) for degree, cost in costs.items()},
            }  # fmt: skip
            found.append(_document("Profile", f"{model.name}-{gpu}-{tokens}", spec))
    return found


def variant_of(tokens: int) -> str:
    """Names the variant of an engine whose iterations compute at most so many tokens."""
    return f"parts-{tokens}"


def _coefficients(cost: IterationCost) -> dict[str, float]:
    return {name: getattr(cost, field) for field, name in COEFFICIENTS.items()}


def _service(model: RagModel, lengths: TokenLengths, rate_per_second: float) -> Document:
    tokens = {
        "input": {"mean": lengths.input_mean, "p95": lengths.input_p95},
        "output": {"mean": lengths.output_mean, "p95": lengths.output_p95},
    }
    slo = {"ttftMs": TTFT_MS, "tpotMs": TPOT_MS, "percentile": PERCENTILE}
    spec = {"model": model.name, "slo": slo, "ratePerSecond": rate_per_second, "tokens": tokens}
    return _document("Service", model.service, spec, TENANT)


def sizes_of(wanted: Sequence[str] | None) -> list[str]:
    """Returns the sizes asked for, or all."""
    return [size for size in MODELS if not wanted or size in wanted]
