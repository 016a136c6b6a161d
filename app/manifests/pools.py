"""Spec of a Pool: nodes of one type that can be rented when they are needed and given back when they are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from app.manifests.model import JSON
from app.manifests.quantities import Name, NotNegative, Positive, Word, Words
from app.manifests.spec import Contradiction, Spec, number

MOST_NODES = 1_000


class PoolSpec(Spec):
    """Nodes of one type that can be rented; each has the price of its GpuType for this region and purchase."""

    gpu_type: Name = Field(description="GpuType of all GPUs of its nodes")
    gpus_per_node: Annotated[int, Field(ge=1, le=1_000)] = Field(description="How many GPUs each node has")
    cpu_cores: NotNegative = Field(description="CPU cores of each node that instances may share")
    memory_gib: NotNegative = Field(description="Host memory of each node that instances may share")
    region: Word = Field("default", description="Region, for prices")
    purchase: Literal["onDemand", "spot"] = Field("onDemand", description="How its nodes are paid for")
    templates: Words | None = Field(None, description="Templates that its nodes offer; all if left out")
    min: Annotated[int, Field(ge=0, le=MOST_NODES)] = Field(0, description="Nodes that are always rented")
    max: Annotated[int, Field(ge=1, le=MOST_NODES)] = Field(description="Nodes that are rented at most")
    start_seconds: Positive = Field(300, description="From the order to the node's first report")
    minimum_minutes: NotNegative = Field(60, description="How long a node is paid for at least")
    hook: Name = Field(description="Hook of the planner's hooks file that rents its nodes and gives them back")

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        least, most = number(spec.get("min")), number(spec.get("max"))
        if least is not None and most is not None and least > most:
            yield Contradiction("min", f"min {least:g} is more than max {most:g}", f"at most {most:g}", least)
