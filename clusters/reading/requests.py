"""The GPUs that a pod asks for: its containers together, or an init container's where that asks for more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clusters.amounts import read_count
from clusters.objects import KubeObject, read_list, read_mapping, read_text
from clusters.reading.gpu_nodes import GPU_RESOURCE

PART_ANNOTATIONS = ("gpu-fraction", "gpu-memory")  # of KAI's scheduler


def read_slots(spec: KubeObject) -> dict[str, int]:
    """Returns how many slots of each resource a pod with this spec takes from its node.

    Init containers run one after the other, each beside the sidecars (`restartPolicy: Always`) that come before it.
    """
    held: Counter[str] = Counter()
    for container in read_list(spec, "containers"):
        held.update(_count_asked(container))
    sidecars: Counter[str] = Counter()
    peaks: list[Mapping[str, int]] = []
    for container in read_list(spec, "initContainers"):
        asked = _count_asked(container)
        if read_text(container, "restartPolicy") == "Always":
            sidecars.update(asked)
        else:
            peaks.append(sidecars + asked)
    held.update(sidecars)
    for peak in peaks:
        for resource, count in peak.items():
            held[resource] = max(held[resource], count)
    return {resource: held[resource] for resource in sorted(held) if held[resource]}


def _count_asked(container: KubeObject) -> Counter[str]:
    limits, requests = read_mapping(container, "resources", "limits"), read_mapping(container, "resources", "requests")
    return Counter(
        {
            name: read_count(amount)
            for name, amount in (*requests.items(), *limits.items())
            if GPU_RESOURCE.fullmatch(name)
        }
    )


def asks_by_claim(spec: KubeObject) -> bool:
    return bool(read_list(spec, "resourceClaims"))


def shares_by_annotation(pod: KubeObject) -> bool:
    """Returns whether KAI's scheduler gives the pod a part of a GPU, which another pod reserves."""
    annotations = read_mapping(pod, "metadata", "annotations")
    return any(name in annotations for name in PART_ANNOTATIONS)
