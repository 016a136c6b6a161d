"""From a pod up its owners to what is scaled: the Deployment of its ReplicaSet, the LeaderWorkerSet of its group."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from clusters.estate import WorkloadName
from clusters.objects import ClusterObjects, KubeObject, name_of, namespace_of, read_field, read_list, read_text

SCALABLE = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "LeaderWorkerSet", "Rollout"})
LEVELS = 12  # of owners: a group's worker has five
GROUP_LABEL = "leaderworkerset.sigs.k8s.io/name"
REPLICA_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
HASH_LABEL = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class OwnedPod:
    """To what a pod belongs: what is scaled, and what stands above that, the nearest first."""

    workload: WorkloadName
    is_scalable: bool
    owners: tuple[str, ...]


class OwnerIndex:
    """Finds the owners of pods; `targets` are the (namespace, kind, name) that autoscalers name, scalable as well."""

    def __init__(self, objects: ClusterObjects, targets: Collection[WorkloadName]) -> None:
        self._by_uid = {
            read_text(item, "metadata", "uid"): (kind, item)
            for kind in objects.lists
            if kind not in ("Node", "ResourceSlice", "PodDisruptionBudget")
            for item in objects.of(kind)
        }
        self._targets = targets
        self._is_read = objects.lists.__contains__

    def find_owners(self, pod: KubeObject) -> OwnedPod:
        namespace = namespace_of(pod)
        chain = [("Pod", name_of(pod)), *self._chain(pod)]
        scalable = [at for at, (kind, name) in enumerate(chain) if self._is_scalable(namespace, kind, name)]
        top = scalable[-1] if scalable else len(chain) - 1
        kind, name = chain[top]
        owners = tuple(f"{kind} {name}" for kind, name in chain[top + 1 :])
        return OwnedPod(WorkloadName(namespace, kind, name), bool(scalable), owners)

    def _is_scalable(self, namespace: str, kind: str, name: str) -> bool:
        return kind in SCALABLE or WorkloadName(namespace, kind, name) in self._targets

    def _chain(self, pod: KubeObject) -> Iterable[tuple[str, str]]:
        item, found = pod, []
        for _ in range(LEVELS):
            owner = _controller(item)
            if owner is None or read_text(owner, "kind") == "Node":  # a pod of its kubelet
                break
            found.append((read_text(owner, "kind"), read_text(owner, "name")))
            known = self._by_uid.get(read_text(owner, "uid"))
            if known is None:
                break
            item = known[1]
        return self._complete(pod, found)

    def _complete(self, pod: KubeObject, chain: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Adds the owner that labels name where an owner on the way could not be read."""
        group = read_text(pod, "metadata", "labels", GROUP_LABEL)
        if group and all(kind != "LeaderWorkerSet" for kind, _ in chain):
            return [*chain, ("LeaderWorkerSet", group)]
        hashed = read_text(pod, "metadata", "labels", HASH_LABEL)
        if not self._is_read("ReplicaSet") and hashed and chain and chain[-1][1].endswith(f"-{hashed}"):
            return [*chain, ("Deployment", chain[-1][1].removesuffix(f"-{hashed}"))]
        return chain


def _controller(item: KubeObject) -> KubeObject | None:
    owners = [owner for owner in read_list(item, "metadata", "ownerReferences") if isinstance(owner, dict)]
    return next((owner for owner in owners if read_field(owner, "controller") is True), owners[0] if owners else None)
