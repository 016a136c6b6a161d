"""What is kept of each object while it is read: large clusters have far more pods than hold GPUs."""

from __future__ import annotations

from typing import Any

from clusters.estate import OURS
from clusters.objects import KubeObject, read_field, read_list, read_mapping, read_text
from clusters.reading.owners import GROUP_LABEL
from clusters.reading.requests import asks_by_claim, read_slots, shares_by_annotation
from clusters.reading.workloads import SCALED


def trim(kind: str, item: KubeObject) -> KubeObject | None:
    """Returns the object without what nobody reads; None for a pod that can hold no GPU."""
    if kind == "Pod" and not _may_matter(item):
        return None
    metadata = {key: value for key, value in read_mapping(item, "metadata").items() if key != "managedFields"}
    if kind in SCALED and any(key.startswith(OURS) for key in read_mapping(metadata, "annotations")):
        metadata["managedFields"] = trim_managers(read_list(item, "metadata", "managedFields"))
    kept = {**item, "kind": kind, "metadata": metadata}
    if kind == "Node":
        kept["status"] = {key: read_field(item, "status", key) for key in ("capacity", "allocatable", "conditions")}
    if kind == "ReplicaSet" and read_list(metadata, "ownerReferences"):
        kept.pop("spec", None)  # its Deployment's is read
    return kept


def _may_matter(pod: KubeObject) -> bool:
    """A leader without GPUs still says to which group its workers belong."""
    spec = read_mapping(pod, "spec")
    if read_slots(spec) or asks_by_claim(spec) or shares_by_annotation(pod):
        return True
    return bool(read_text(pod, "metadata", "labels", GROUP_LABEL))


def trim_managers(entries: list[Any]) -> list[KubeObject]:
    """Returns who wrote what is declared; of the fields, only whether replicas are among them."""
    found: list[KubeObject] = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("subresource") == "status":
            continue
        has_replicas = read_field(entry, "fieldsV1", "f:spec", "f:replicas") is not None
        fields: KubeObject = {"f:spec": {"f:replicas": {}}} if has_replicas else {}
        found.append({key: value for key, value in entry.items() if key != "fieldsV1"} | {"fieldsV1": fields})
    return found
