"""Facts of GPU types by their data sheets, from gpus.yaml: one table for all that lists, draws or simulates GPUs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A size of MIG devices, and how many of them a GPU holds at most when all have this size."""

    name: str  # 1g.5gb: seventh parts of the SMs, and the memory by which NVIDIA names it
    id: int  # of nvidia-smi mig -cgi
    most: int
    memory_gib: float
    sm_count: int
    memory_slices: int

    @property
    def compute_slices(self) -> int:
        return int(self.name.partition("g.")[0])


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
    pcie_gbit_per_second: int | None = None  # in each direction; None: no PCIe of its own
    nvlink_gbit_per_second: int | None = None  # likewise, to all GPUs of its machine; None: none, or bridges of pairs
    mig_profiles: tuple[MigProfile, ...] = ()  # none where it cannot be divided
    mig_memory_slices: int = 0  # into which its memory and its bandwidth are divided


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
        pcie_gbit_per_second=entry.get("pcieGbitPerSecond"),
        nvlink_gbit_per_second=entry.get("nvlinkGbitPerSecond"),
        mig_profiles=tuple(_read_mig_profile(profile) for profile in entry.get("migProfiles", ())),
        mig_memory_slices=entry.get("migMemorySlices", 0),
    )


def _read_mig_profile(entry: Mapping[str, Any]) -> MigProfile:
    return MigProfile(
        name=entry["name"],
        id=entry["id"],
        most=entry["most"],
        memory_gib=entry["memoryGib"],
        sm_count=entry["smCount"],
        memory_slices=entry["memorySlices"],
    )
