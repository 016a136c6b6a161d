"""Specs of models with their variants, and of the profiles that measure them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from app.manifests.adapters import AdapterPlacesSpec
from app.manifests.drafts import ERROR_GOAL
from app.manifests.faults import escape, quote
from app.manifests.language import (
    TOKENS_PER_ITERATION,
    Engines,
    Iterations,
    LlmSpec,
    TokensPerIteration,
    profile_contradictions,
)
from app.manifests.model import JSON
from app.manifests.quantities import (
    Batch,
    Fraction,
    Name,
    Names,
    NotNegative,
    Positive,
    Word,
)
from app.manifests.runtime import RuntimeSpec, runtime_contradictions
from app.manifests.spec import Contradiction, Spec
from app.manifests.uncertain import (
    ExponentValue,
    Latencies,
    NotNegativeValue,
    PositiveValue,
    Pressure,
    Sensitivity,
    Watts,
)


class VariantSpec(Spec):
    """One size or precision of a model."""

    name: Word = Field(description="Unique within the model")
    accuracy: Fraction = Field(description="0..1, compared with a service's minAccuracy")
    params_m: NotNegative | None = Field(None, description="Millions of parameters")
    runtime: RuntimeSpec | None = Field(None, description="How nodes start it; not needed to plan")
    llm: LlmSpec | None = Field(None, description="What a language model holds in memory")


class ModelSpec(Spec):
    """A model, in one or more variants."""

    variants: list[VariantSpec] = Field(min_length=1, max_length=1_000, description="Its sizes and precisions")
    tenants: Names | None = Field(None, description="Tenants that may use it; all if left out")

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        variants = spec.get("variants")
        earlier: set[str] = set()
        for index, variant in enumerate(variants if isinstance(variants, list) else ()):
            name = variant.get("name") if isinstance(variant, dict) else None
            if isinstance(name, str):
                if name in earlier:
                    message = f"the variant {quote(name)} is declared twice"
                    yield Contradiction(f"variants[{index}].name", message, "each name once in a model", name)
                earlier.add(name)
            if isinstance(variant, dict) and "runtime" in variant:
                yield from runtime_contradictions(variant["runtime"], f"variants[{index}].runtime")


class DemandSpec(Spec):
    """The resources of a running instance or job besides its share of SMs."""

    cpu_cores: NotNegativeValue = Field(0, description="CPU cores")
    host_memory_gib: NotNegativeValue = Field(0, description="Host memory")
    pressure: Pressure = Field(
        0.0,
        description="Its pressure on what neighbours share, 0..1: on compute, one value or by SM%, or a pair for both",
    )
    sensitivity: Sensitivity = Field(
        0, description="Slowdown per unit of its neighbours' pressure: on compute, or a pair for both"
    )
    power_w: Watts = Field(0.0, description="Watts above idle when busy, by SM%, at the highest clock")
    clock_exponent: ExponentValue = Field(1, description="Time grows with (highest clock / clock) ** this")
    power_exponent: ExponentValue = Field(1, description="powerW shrinks with (clock / highest clock) ** this")
    start_seconds: NotNegativeValue = Field(20, description="From start to warm")


class ProfileSpec(DemandSpec):
    """The declared latency, memory and power of one variant on one GPU type."""

    model: Name = Field(description="Model")
    variant: Word = Field(description="Variant of the model")
    gpu_type: Name = Field(description="GpuType that the figures belong to")
    latency_ms: Annotated[dict[Batch, Latencies], Field(min_length=1)] | None = Field(
        None, description="Batch -> SM% -> time of one batch alone on the GPU, at the highest clock"
    )
    memory_gib: Annotated[dict[Batch, PositiveValue], Field(min_length=1)] | None = Field(
        None, description="Batch -> GPU memory; every batch with a latency needs an entry"
    )
    iteration: Iterations | None = Field(
        None, description="Of a language model, instead of latencyMs and memoryGib: GPUs -> time of an iteration"
    )
    overhead_gib: NotNegativeValue = Field(
        0, description="Of a language model: memory of each GPU besides weights, keys and values"
    )
    tokens_per_iteration: TokensPerIteration = Field(
        TOKENS_PER_ITERATION, description="Of a language model: tokens that an iteration computes at most"
    )
    engine: Engines | None = Field(
        None, description="Of a language model: GPUs -> memory and ranks, as a server with so many says when it starts"
    )
    adapters: AdapterPlacesSpec | None = Field(
        None, description="Of a language model: places for LoRA adapters, and what they cost a server that keeps them"
    )
    left_out_error: NotNegative | None = Field(
        None, description="Mean share by which the fit misses a measurement that it is not shown"
    )
    error_goal: Annotated[Positive, Field(le=1)] = Field(
        ERROR_GOAL, description="With a larger leftOutError the Profile is a draft"
    )

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        yield from profile_contradictions(spec)
        latencies, memories = spec.get("latencyMs"), spec.get("memoryGib")
        if not isinstance(latencies, dict) or not isinstance(memories, dict) or not latencies or not memories:
            return
        for batch in latencies:
            if batch not in memories:
                message = f"batch {escape(batch)} has a latency but no memory"
                yield Contradiction("memoryGib", message, "a memory for every batch of latencyMs")
