"""Finds caps of nodes' GPUs, in watts, that their GpuType does not allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from app.manifests.faults import ManifestFault
from app.manifests.model import JSON, Key, Kind, Manifest, WrittenSpec
from app.manifests.references import ReferenceWorld


class WrongCap(NamedTuple):
    """A cap that is outside of what a GpuType allows."""

    field: str  # `capW`, or `capW[2]` in a list
    cap_w: float
    why: str
    allowed: str


def gpu_caps_w(node: WrittenSpec) -> tuple[float, ...]:
    """Returns the watts that each GPU of the node may draw, in their order; empty if the node states no capW."""
    caps: list[float] | float | None = node.get("capW")
    if caps is None:
        return ()
    return tuple(map(float, caps)) if isinstance(caps, list) else (float(caps),) * int(node["gpus"])


def find_unfit_caps(manifests: Iterable[Manifest], world: ReferenceWorld) -> list[ManifestFault]:
    """Returns the caps of Nodes that their GpuType does not allow; a GpuType that is missing is reported elsewhere."""
    found: list[ManifestFault] = []
    for manifest in manifests:
        if manifest.kind is not Kind.NODE or "capW" not in manifest.spec:
            continue
        gpu_type = world.spec(Key(Kind.GPU_TYPE, "", str(manifest.spec["gpuType"])))
        document = f"{manifest.document} {manifest.key}".strip()
        found += [
            ManifestFault(document, f"spec.{wrong.field}", wrong.why, wrong.allowed, wrong.cap_w)
            for wrong in (wrong_caps(manifest.spec, gpu_type) if gpu_type else ())
        ]
    return found


def wrong_caps(node: Mapping[str, JSON], gpu_type: Mapping[str, object]) -> Iterator[WrongCap]:
    """Yields the caps of a node that are above its GpuType's maxW, or not above its idleW."""
    name, idle_w, max_w = node["gpuType"], gpu_type["idleW"], gpu_type["maxW"]
    caps: object = node.get("capW")
    listed = caps if isinstance(caps, list) else [] if caps is None else [caps]
    for index, cap_w in enumerate(listed):
        field = f"capW[{index}]" if isinstance(caps, list) else "capW"
        if cap_w > max_w:
            why = f"{cap_w:g} W is above maxW {max_w:g} of GpuType {name}"
        elif cap_w <= idle_w:
            why = f"{cap_w:g} W is not above idleW {idle_w:g} of GpuType {name}"
        else:
            continue
        yield WrongCap(field, cap_w, why, f"a number over {idle_w:g}, at most {max_w:g}")
