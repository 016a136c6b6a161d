"""What a GPU of each declared node costs an hour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.control.domain.snapshot import DeclaredObject
from app.manifests.prices import price_per_hour


def node_prices(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """By node: the rate in force for its type, region and purchase."""
    types: dict[str, Any] = {one.name: one.spec for one in declared if one.kind == "GpuType"}
    found = {}
    for one in declared:
        spec: Any = one.spec
        if one.kind == "Node" and spec["gpuType"] in types:
            region, purchase = spec.get("region", "default"), spec.get("purchase", "onDemand")
            found[one.name] = price_per_hour(types[spec["gpuType"]], region, purchase)
    return found
