"""Facts of GPU types by their data sheets, from gpus.yaml: one table for all that lists, draws or simulates GPUs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The data sheet of one GPU type; `idle_w` is typical and the price an example, from no sheet."""

    name: str
    title: str
    products: tuple[str, ...]  # its names in labels of Kubernetes nodes
    architecture: str
    year: int
    form: str
    memory_gib: int
    memory_type: str
    sm_count: int
    idle_w: int
    max_w: int
    clocks_mhz: tuple[int, ...]
    example_price_per_hour: float
    source: str
    bandwidth_gb_per_second: float | None  # of its memory; None where nothing asks for it
    tensor_tflops: float | None  # dense half precision, likewise


@functools.cache
def read_sheets() -> Mapping[str, Sheet]:
    """Returns every sheet by name, oldest generation first."""
    import yaml  # needed only where the table is

    text = resources.files("agents.contract").joinpath("gpus.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(text, Loader=loader)  # noqa: S506 (both are safe)
    return {entry["name"]: _read(entry) for entry in entries}


def _read(entry: Mapping[str, Any]) -> Sheet:
    return Sheet(
        name=entry["name"],
        title=entry["title"],
        products=tuple(entry["products"]),
        architecture=entry["architecture"],
        year=entry["year"],
        form=entry["form"],
        memory_gib=entry["memoryGib"],
        memory_type=entry["memoryType"],
        sm_count=entry["smCount"],
        idle_w=entry["idleW"],
        max_w=entry["maxW"],
        clocks_mhz=tuple(entry["clocksMhz"]),
        example_price_per_hour=entry["examplePricePerHour"],
        source=entry["source"],
        bandwidth_gb_per_second=entry.get("bandwidthGbPerSecond"),
        tensor_tflops=entry.get("tensorTflops"),
    )
