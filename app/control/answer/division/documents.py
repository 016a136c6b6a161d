"""Writes the manifests of a division: the devices' GpuTypes, the Profiles expected on them, and the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app.control.answer.division.layouts import MigLayout
from app.control.answer.division.wire import ProposedDocumentWire
from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import Spec, gpu_count
from app.manifests.model import API_VERSION, JSON, Free
from solvers.planning.problem import Curve, Problem, Profile

LONGEST_NAME = 63


def write_types(
    divided: Problem, declared: Sequence[DeclaredObject], layouts: Sequence[MigLayout]
) -> Iterator[ProposedDocumentWire]:
    """Yields GpuTypes and Profiles of the devices, as far as they are not declared."""
    known = {(line.kind, line.name) for line in declared}
    types = {line.name: line.spec for line in declared if line.kind == "GpuType"}
    profiles = [line for line in declared if line.kind == "Profile"]
    there = {(line.spec["model"], line.spec["variant"], line.spec["gpuType"]) for line in profiles}
    for layout in layouts:
        if ("GpuType", layout.gpu_type) not in known:
            yield _write("GpuType", layout.gpu_type, _describe_type(divided, types[layout.whole_type], layout))
    for layout in layouts:
        for line in profiles:
            key = (str(line.spec["model"]), str(line.spec["variant"]), layout.gpu_type)
            derived = divided.profiles.get(key)
            if line.spec["gpuType"] == layout.whole_type and key not in there and derived is not None:
                name = f"{line.name[: LONGEST_NAME - 8]}-{layout.profile.name.replace('.', '-')}"[:LONGEST_NAME]
                yield _write("Profile", name, _describe_profile(line.spec, derived))


def write_node(node: DeclaredObject, layout: MigLayout) -> ProposedDocumentWire:
    """Returns the Node as it is once its GPUs are divided."""
    gpus: dict[str, JSON] = {"gpuType": layout.gpu_type, "gpus": gpu_count(node.spec) * layout.profile.most}
    rest = {name: value for name, value in node.spec.items() if name != "nvlinkGroup"}
    return _write("Node", node.name, {**rest, **gpus})


def _describe_type(divided: Problem, whole: Spec, layout: MigLayout) -> Free:
    kind, most = divided.gpu_types[layout.gpu_type], layout.profile.most
    spec: Free = {
        "memoryGib": kind.memory_gib,
        "smCount": layout.profile.sm_count,
        "pricePerHour": whole["pricePerHour"] / most,
        "idleW": kind.idle_w,
        "maxW": kind.max_w,
        "clocksMhz": [kind.top_clock_mhz],
    }
    if prices := whole.get("prices"):
        spec["prices"] = [{**price, "perHour": price["perHour"] / most} for price in prices]
    return spec


def _describe_profile(whole: Spec, derived: Profile) -> Free:
    spec: Free = {
        **whole,
        "gpuType": derived.gpu_type,
        "latencyMs": {str(batch): _write_curve(curve) for batch, curve in derived.latency_ms.items()},
        "memoryGib": {str(batch): memory for batch, memory in derived.memory_gib.items()},
    }
    if "powerW" in whole:
        spec["powerW"] = _write_curve(derived.demand.power_w)
    return spec


def _write_curve(curve: Curve) -> Mapping[str, float]:
    return {str(percent): value for percent, value in curve}


def _write(kind: str, name: str, spec: Free) -> ProposedDocumentWire:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
