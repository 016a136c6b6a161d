"""Specs of models with their variants, and of the profiles that measure them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from app.manifests.faults import escaped, quoted
from app.manifests.model import JSON
from app.manifests.quantities import (
    LARGEST,
    Batch,
    Fraction,
    Name,
    Names,
    NotNegative,
    Word,
    rule_fault,
)
from app.manifests.spec import Contradiction, Spec
from app.manifests.uncertain import (
    ExponentValue,
    Latencies,
    NotNegativeValue,
    PositiveValue,
    Pressure,
    Watts,
)


def _argument(value: str | float | bool) -> str | float | bool:
    if isinstance(value, str):
        if len(value) > 1_000:
            raise rule_fault(f"the string has {len(value)} characters", "at most 1,000 characters")
        if not value.isprintable():
            raise rule_fault("the string contains characters that cannot be printed", "printable characters")
    elif not isinstance(value, bool) and abs(value) > LARGEST:
        raise rule_fault(f"{value:g} is too large", "a number up to 1e12")
    return value


# Values of a template's arguments. The node that defines the template checks its arguments and paths.
ArgumentName = Annotated[str, Field(pattern=r"^[A-Za-z][-A-Za-z0-9_.]{0,62}$")]
Argument = Annotated[StrictStr | StrictBool | StrictInt | StrictFloat, AfterValidator(_argument)]


class RuntimeSpec(Spec):
    """The way a node starts a variant: a template of the node, with typed arguments."""

    template: Word = Field(description="Name of the template on the nodes")
    args: dict[ArgumentName, Argument] = Field(
        default_factory=dict,
        max_length=64,
        description="Arguments of the template: strings, numbers, true or false",
    )


class VariantSpec(Spec):
    """One size or precision of a model."""

    name: Word = Field(description="Unique within the model")
    accuracy: Fraction = Field(description="0..1, compared with a service's minAccuracy")
    params_m: NotNegative | None = Field(None, description="Millions of parameters")
    runtime: RuntimeSpec | None = Field(None, description="How nodes start it; not needed to plan")


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
                    message = f"the variant {quoted(name)} is declared twice"
                    yield Contradiction(f"variants[{index}].name", message, "each name once in a model", name)
                earlier.add(name)


class DemandSpec(Spec):
    """The resources of a running instance or job besides its share of SMs."""

    cpu_cores: NotNegativeValue = Field(0, description="CPU cores")
    host_memory_gib: NotNegativeValue = Field(0, description="Host memory")
    pressure: Pressure = Field(0.0, description="Its pressure on the shared memory system, 0..1; one value, or by SM%")
    sensitivity: NotNegativeValue = Field(0, description="Slowdown per unit of its neighbours' pressure")
    power_w: Watts = Field(0.0, description="Watts above idle when busy, by SM%, at the highest clock")
    clock_exponent: ExponentValue = Field(1, description="Time grows with (highest clock / clock) ** this")
    power_exponent: ExponentValue = Field(1, description="powerW shrinks with (clock / highest clock) ** this")
    start_seconds: NotNegativeValue = Field(20, description="From start to warm")


class ProfileSpec(DemandSpec):
    """The declared latency, memory and power of one variant on one GPU type."""

    model: Name = Field(description="Model")
    variant: Word = Field(description="Variant of the model")
    gpu_type: Name = Field(description="GpuType that the figures belong to")
    latency_ms: Annotated[dict[Batch, Latencies], Field(min_length=1)] = Field(
        description="Batch -> SM% -> time of one batch alone on the GPU, at the highest clock"
    )
    memory_gib: Annotated[dict[Batch, PositiveValue], Field(min_length=1)] = Field(
        description="Batch -> GPU memory; every batch with a latency needs an entry"
    )

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        latencies, memories = spec.get("latencyMs"), spec.get("memoryGib")
        if not isinstance(latencies, dict) or not isinstance(memories, dict) or not latencies or not memories:
            return
        for batch in latencies:
            if batch not in memories:
                message = f"batch {escaped(batch)} has a latency but no memory"
                yield Contradiction("memoryGib", message, "a memory for every batch of latencyMs")
