"""Kubernetes objects as an API server or `kubectl get -o json` gives them, and safe ways to look into them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from clusters.estate import UnknownFigure

KubeObject: TypeAlias = Mapping[str, Any]

MOST_DIGITS = 18  # of a whole number


class KubeResource(NamedTuple):
    """A list that is read: `apps/v1 deployments`, whose objects are of kind Deployment."""

    kind: str
    group: str
    versions: tuple[str, ...]  # the newest first: the first that the server has is read
    plural: str
    needed_for: str  # what stays unknown without it

    @property
    def display_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


KINDS = (
    KubeResource("Node", "", ("v1",), "nodes", "which GPUs there are and what they cost"),
    KubeResource("Pod", "", ("v1",), "pods", "who holds GPUs"),
    KubeResource("ReplicaSet", "apps", ("v1",), "replicasets", "to which Deployment a pod belongs"),
    KubeResource("Deployment", "apps", ("v1",), "deployments", "how many replicas are declared"),
    KubeResource("StatefulSet", "apps", ("v1",), "statefulsets", "how many replicas are declared"),
    KubeResource("Job", "batch", ("v1",), "jobs", "to which CronJob or queue a job belongs"),
    KubeResource("LeaderWorkerSet", "leaderworkerset.x-k8s.io", ("v1",), "leaderworkersets", "groups and their size"),
    KubeResource("Rollout", "argoproj.io", ("v1alpha1",), "rollouts", "how many replicas are declared"),
    KubeResource(
        "HorizontalPodAutoscaler", "autoscaling", ("v2",), "horizontalpodautoscalers", "who sets replicas, and bounds"
    ),
    KubeResource("ScaledObject", "keda.sh", ("v1alpha1",), "scaledobjects", "who sets replicas, and bounds"),
    KubeResource("PodDisruptionBudget", "policy", ("v1",), "poddisruptionbudgets", "how many pods must stay"),
    KubeResource(
        "ResourceSlice", "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "resourceslices", "GPUs of DRA drivers"
    ),
    KubeResource(
        "ResourceClaim", "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "resourceclaims", "who holds GPUs by claims"
    ),
)

RULES = ("HorizontalPodAutoscaler", "ScaledObject", "PodDisruptionBudget")  # that keep replicas


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of each kind; a kind that is missing was not read, and `unread` says why."""

    lists: Mapping[str, tuple[KubeObject, ...]]
    unread: tuple[UnknownFigure, ...] = ()
    server_time: datetime | None = None  # by the API server's clock, when they began to be read
    read_until: datetime | None = None  # by the same clock
    origin: str = "this cluster"  # as its people call it

    def of(self, kind: str) -> tuple[KubeObject, ...]:
        return self.lists.get(kind, ())


def objects_of(items: Iterable[KubeObject]) -> ClusterObjects:
    """Sorts objects of any kinds, as the `items` of a List, by kind; of one that is given twice, the last counts."""
    lists: dict[str, dict[tuple[str, str], KubeObject]] = {kind.kind: {} for kind in KINDS}
    for item in items:
        lists.setdefault(str(item.get("kind", "")), {})[namespace_of(item), name_of(item)] = item
    return ClusterObjects({kind: tuple(found.values()) for kind, found in lists.items()})


def name_absent(objects: ClusterObjects) -> ClusterObjects:
    """Adds a sentence on rules of which a file has no object: the cluster may have none, or nobody asked for them."""
    absent = [resource for resource in KINDS if resource.kind in RULES and not objects.of(resource.kind)]
    if not absent or not objects.of("Node"):
        return objects
    figure = UnknownFigure(
        f"list of {', '.join(resource.display_name for resource in absent)}",
        "the objects given have none, and savings take for granted that the cluster has none",
        f"give kubectl get {','.join(resource.plural for resource in absent)} as well",
    )
    return replace(objects, unread=(*objects.unread, figure))


def read_field(item: Any, *path: str) -> Any:
    """Returns what stands at the path; None where anything on the way is missing or of another shape."""
    for part in path:
        if not isinstance(item, Mapping):
            return None
        item = item.get(part)
    return item


def read_mapping(item: Any, *path: str) -> Mapping[str, Any]:
    found = read_field(item, *path)
    return found if isinstance(found, Mapping) else {}


def read_list(item: Any, *path: str) -> list[Any]:
    found = read_field(item, *path)
    return found if isinstance(found, list) else []


def read_text(item: Any, *path: str) -> str:
    found = read_field(item, *path)
    return found if isinstance(found, str) else ""


def read_whole(item: Any, *path: str) -> int | None:
    """Returns a whole number, which labels and some fields hold as text."""
    found = read_field(item, *path)
    if isinstance(found, int) and not isinstance(found, bool):
        return found if abs(found) < 10**MOST_DIGITS else None
    is_number = isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= MOST_DIGITS
    return int(found) if is_number else None


def name_of(item: KubeObject) -> str:
    return read_text(item, "metadata", "name")


def namespace_of(item: KubeObject) -> str:
    return read_text(item, "metadata", "namespace")
