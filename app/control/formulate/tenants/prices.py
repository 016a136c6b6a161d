"""The hourly price of a GPU on each declared node."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import gpu_type_of, node_price


def node_prices(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """Returns, by node, the price for its type, region and purchase."""
    types = {item.name: item.spec for item in declared if item.kind == "GpuType"}
    return {
        item.name: node_price(item.spec, types[gpu_type_of(item.spec)])
        for item in declared
        if item.kind == "Node" and gpu_type_of(item.spec) in types
    }
