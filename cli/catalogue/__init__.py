"""Data sheets of GPU types, read from gpus.yaml, and the GpuType manifests made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import Any

from cli.exits import Failed


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


def sheets() -> list[Sheet]:
    """Returns every sheet, oldest generation first."""
    import yaml

    text = resources.files("cli.catalogue").joinpath("gpus.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [_sheet(entry) for entry in yaml.load(text, Loader=loader)]  # noqa: S506 (both are safe)


def named(names: Sequence[str]) -> list[Sheet]:
    """Returns the sheets of these names, in this order; Failed says which name the catalogue lacks."""
    known = {sheet.name: sheet for sheet in sheets()}
    missing = [name for name in names if name not in known]
    if missing:
        raise Failed(
            f"the catalogue has no {', '.join(map(repr, missing))}; see: gpuwright catalogue list",
            particulars=_suggestions(missing, known),
        )
    return [known[name] for name in dict.fromkeys(names)]


def manifest(sheet: Sheet, price_per_hour: float | None = None) -> dict[str, Any]:
    """Returns the GpuType manifest of a sheet, at the example price unless another is given."""
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
        },
    }


def _sheet(entry: dict[str, Any]) -> Sheet:
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
    )


def _suggestions(missing: Iterable[str], known: Iterable[str]) -> list[str]:
    names = list(known)
    lines = []
    for name in missing:
        starting = [each for each in names if each.startswith(name)]
        near = starting or get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            lines.append(f"{name}: did you mean {' or '.join(near)}?")
    return lines
