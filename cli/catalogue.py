"""Data sheets of GPU types by name, and the GpuType manifests made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from agents.contract.gpus import Sheet, read_sheets
from cli.exits import Failed


def find_sheets(names: Sequence[str]) -> list[Sheet]:
    """Returns the sheets of these names, in this order; Failed says which name the catalogue lacks."""
    known = read_sheets()
    missing = [name for name in names if name not in known]
    if missing:
        raise Failed(
            f"the catalogue has no {', '.join(map(repr, missing))}; see: gpuwright catalogue list",
            particulars=_suggestions(missing, known),
        )
    return [known[name] for name in dict.fromkeys(names)]


def manifest(sheet: Sheet, price_per_hour: float | None = None) -> dict[str, Any]:
    """Returns the GpuType manifest of a sheet, at the example price unless another is given."""
    links = {"nvlinkGbit": sheet.nvlink_gbit_per_second, "pcieGbit": sheet.pcie_gbit_per_second}
    return {
        "apiVersion": "gpuwright/v1",
        "kind": "GpuType",
        "metadata": {
            "name": sheet.name,
            "labels": {"architecture": sheet.architecture, "form": sheet.form, "year": str(sheet.year)},
        },
        "spec": {
            "memoryGib": sheet.memory_gib,
            "smCount": sheet.sm_count,
            "pricePerHour": sheet.example_price_per_hour if price_per_hour is None else price_per_hour,
            "idleW": sheet.idle_w,
            "maxW": sheet.max_w,
            "clocksMhz": list(sheet.clocks_mhz),
            **{name: speed for name, speed in links.items() if speed},
        },
    }


def _suggestions(missing: Iterable[str], known: Iterable[str]) -> list[str]:
    names = list(known)
    lines = []
    for name in missing:
        starting = [each for each in names if each.startswith(name)]
        near = starting or get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            lines.append(f"{name}: did you mean {' or '.join(near)}?")
    return lines
