"""The hourly price of a GPU on each declared node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.control.domain.snapshot import DeclaredObject
from app.manifests.prices import price_per_hour


def node_prices(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """Returns, by node, the price for its type, region and purchase."""
    types: dict[str, Any] = {item.name: item.spec for item in declared if item.kind == "GpuType"}
    found = {}
    for item in declared:
        spec: Any = item.spec
        if item.kind == "Node" and spec["gpuType"] in types:
            region, purchase = spec.get("region", "default"), spec.get("purchase", "onDemand")
            found[item.name] = price_per_hour(types[spec["gpuType"]], region, purchase)
    return found
