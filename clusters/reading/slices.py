"""GPUs of DRA drivers: what ResourceSlices publish, and who holds it by a ResourceClaim."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from clusters.amounts import read_gib
from clusters.objects import KubeObject, read_field, read_list, read_mapping, read_text, read_whole

DRIVER = "gpu.nvidia.com"
MIG_SLICES = 7  # that a GPU is divided into at most


@dataclass(frozen=True, slots=True)
class SlicedGpus:
    """The GPUs that a node's ResourceSlices publish."""

    gpus: int
    product: str
    memory_gib: float | None


@dataclass(frozen=True, slots=True)
class ClaimedGpus:
    """What a pod holds by its claims; claims that several pods hold count as their parts."""

    gpus: Fraction
    devices: tuple[str, ...]


def read_slices(slices: Iterable[KubeObject]) -> dict[str, SlicedGpus]:
    """Returns the GPUs of each node; of a pool that is being replaced, the newest generation counts."""
    newest: dict[tuple[str, str], int] = {}
    kept: dict[tuple[str, str], list[Mapping[str, object]]] = {}
    for item in slices:
        spec = read_mapping(item, "spec")
        node = read_text(spec, "nodeName")
        if read_text(spec, "driver") != DRIVER or not node:
            continue
        place = node, read_text(spec, "pool", "name")
        generation = read_whole(spec, "pool", "generation") or 0
        if generation > newest.get(place, -1):
            newest[place], kept[place] = generation, []
        if generation == newest[place]:
            kept[place] += [device for device in read_list(spec, "devices") if isinstance(device, Mapping)]
    by_node: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for (node, _), devices in kept.items():
        by_node[node] += devices
    return {node: found for node, devices in by_node.items() if (found := _gpus(devices)).gpus}


def _gpus(devices: Iterable[Mapping[str, object]]) -> SlicedGpus:
    gpus = [device for device in devices if _read_attribute(device, "type") in ("gpu", "")]
    product = next((text.replace(" ", "-") for device in gpus if (text := _read_attribute(device, "productName"))), "")
    sizes = [read_gib(_capacity(device, "memory")) for device in gpus]
    return SlicedGpus(len(gpus), product, next((size for size in sizes if size is not None), None))


def _read_attribute(device: Mapping[str, object], name: str) -> str:
    """Returns an attribute; before v1 of the API they stood under `basic`."""
    return read_text(device, "attributes", name, "string") or read_text(device, "basic", "attributes", name, "string")


def _capacity(device: Mapping[str, object], name: str) -> object:
    found = read_field(device, "capacity", name, "value") or read_field(device, "basic", "capacity", name, "value")
    return found or read_field(device, "basic", "capacity", name)


def read_claims(claims: Iterable[KubeObject], slices: Iterable[KubeObject]) -> dict[str, ClaimedGpus]:
    """Returns what each pod holds, by the pod's UID."""
    profiles = _mig_profiles(slices)
    found: dict[str, ClaimedGpus] = {}
    for claim in claims:
        results = read_list(claim, "status", "allocation", "devices", "results")
        devices = [result for result in results if read_text(result, "driver") == DRIVER]
        if not devices:
            continue
        pods = [
            read_text(holder, "uid")
            for holder in read_list(claim, "status", "reservedFor")
            if read_text(holder, "resource") == "pods"
        ]
        parts = (profiles.get((read_text(gpu, "pool"), read_text(gpu, "device")), Fraction(1)) for gpu in devices)
        gpus = sum(parts, Fraction(0))
        names = tuple(read_text(gpu, "device") for gpu in devices)
        for pod in pods:
            held = found.get(pod, ClaimedGpus(Fraction(0), ()))
            found[pod] = ClaimedGpus(held.gpus + gpus / len(pods), held.devices + names)
    return found


def _mig_profiles(slices: Iterable[KubeObject]) -> dict[tuple[str, str], Fraction]:
    """Returns the part of a GPU that a device is, for devices that are no whole GPUs: `2g.10gb` is two sevenths."""
    found = {}
    for item in slices:
        pool = read_text(item, "spec", "pool", "name")
        for device in read_list(item, "spec", "devices"):
            profile = _read_attribute(device, "profile") if isinstance(device, Mapping) else ""
            if re.match("[0-9]g", profile):
                found[pool, read_text(device, "name")] = Fraction(int(profile[0]), MIG_SLICES)
    return found
