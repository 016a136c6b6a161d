"""What is kept of each object while it is read: large clusters have far more pods than hold GPUs."""

from __future__ import annotations

from clusters.objects import KubeObject, read_field, read_list, read_mapping, read_text
from clusters.reading.owners import GROUP_LABEL
from clusters.reading.requests import asks_by_claim, read_slots, shares_by_annotation


def trim(kind: str, item: KubeObject) -> KubeObject | None:
    """Returns the object without what nobody reads; None for a pod that can hold no GPU."""
    if kind == "Pod" and not _may_matter(item):
        return None
    metadata = {key: value for key, value in read_mapping(item, "metadata").items() if key != "managedFields"}
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
