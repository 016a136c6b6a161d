"""Workloads: what their objects declare, joined with the pods that run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.estate import (
    NOTHING,
    OURS,
    Autoscaler,
    ClusterWorkload,
    DisruptionBudget,
    GpuPod,
    PodSpread,
    WorkloadName,
)
from clusters.objects import (
    ClusterObjects,
    KubeObject,
    name_of,
    namespace_of,
    read_list,
    read_mapping,
    read_text,
    read_whole,
)
from clusters.reading.owners import OwnedPod
from clusters.reading.placement import PodPlace, find_barred
from clusters.reading.requests import read_slots
from clusters.reading.rules import read_budgets, read_spread, read_surge

GROUPED = "LeaderWorkerSet"
SCALED = ("Deployment", "StatefulSet", GROUPED)  # whose replicas may be written
DECLARED = ("Deployment", "StatefulSet", "ReplicaSet", "Rollout", GROUPED)


@dataclass(frozen=True, slots=True)
class Declared:
    """What the object of a workload says of its replicas; without the object, what its pods show."""

    replicas: int | None
    pods_per_replica: int
    gpu_pods_per_replica: int
    slots_per_replica: Mapping[str, int]
    owners: tuple[str, ...]
    templates: tuple[KubeObject, ...]  # of its pods, a group's leader first
    annotations: Mapping[str, str]
    surge_below: int = 0

    @classmethod
    def count_pods(cls, pods: Sequence[KubeObject]) -> Declared:
        sample = min(pods, key=name_of)
        slots = read_slots(read_mapping(sample, "spec"))
        return cls(None, 1, 1, slots, (), (sample,), _ours(sample))


def read_declared(objects: ClusterObjects) -> dict[WorkloadName, Declared]:
    """Returns what each object declares that has replicas and that nothing else owns."""
    found = {}
    for kind in DECLARED:
        for item in objects.of(kind):
            owners = [owner for owner in read_list(item, "metadata", "ownerReferences") if isinstance(owner, Mapping)]
            if any(read_text(owner, "kind") in (*DECLARED, "Pod") for owner in owners):
                continue
            if kind == "Rollout" and not read_mapping(item, "spec", "template"):
                continue  # it takes the pods of a Deployment, which its pods show
            names = tuple(f"{read_text(owner, 'kind')} {read_text(owner, 'name')}" for owner in owners)
            found[WorkloadName(namespace_of(item), kind, name_of(item))] = _read_declared(item, kind, names)
    return found


def _read_declared(item: KubeObject, kind: str, owners: tuple[str, ...]) -> Declared:
    replicas = read_whole(item, "spec", "replicas")
    replicas = 1 if replicas is None else replicas
    if kind != GROUPED:
        template = read_mapping(item, "spec", "template")
        slots = read_slots(read_mapping(template, "spec"))
        return Declared(
            replicas, 1, 1, slots, owners, (template,), _ours(item) | _ours(template),
            read_surge(item, kind) if kind in ("Deployment", "Rollout") else 0,
        )  # fmt: skip
    group = read_mapping(item, "spec", "leaderWorkerTemplate")
    size = read_whole(group, "size") or 1
    worker = read_mapping(group, "workerTemplate")
    leader = read_mapping(group, "leaderTemplate") or worker
    slots_of_leader, slots_of_worker = (
        read_slots(read_mapping(leader, "spec")),
        read_slots(read_mapping(worker, "spec")),
    )
    slots = Counter(slots_of_leader)
    for resource, count in slots_of_worker.items():
        slots[resource] += count * (size - 1)
    gpu_pods = bool(slots_of_leader) + bool(slots_of_worker) * (size - 1)
    return Declared(
        replicas, size, gpu_pods, dict(slots), owners, (leader, worker), _ours(item) | _ours(worker) | _ours(leader)
    )


def workload_of(
    owned: OwnedPod,
    held: Sequence[tuple[GpuPod, KubeObject]],
    declared: Declared,
    autoscaler: Autoscaler | None,
    budgets: Sequence[KubeObject],
    places: Sequence[PodPlace],
    *,
    is_tied: bool,
) -> ClusterWorkload:
    """Joins what is declared with the pods that hold GPUs."""
    groups: dict[str, list[GpuPod]] = defaultdict(list)
    for pod, _ in held:
        groups[pod.replica].append(pod)
    complete = [pods for pods in groups.values() if len(pods) >= declared.gpu_pods_per_replica]
    templates = declared.templates or tuple(item for _, item in held[:1])
    return ClusterWorkload(
        name=owned.workload,
        owners=owned.owners,
        is_scalable=owned.is_scalable,
        replicas=declared.replicas,
        running=sum(all(pod.node for pod in pods) for pods in complete),
        ready=sum(all(pod.node and pod.is_ready for pod in pods) for pods in complete),
        waiting_pods=sum(not pod.node for pod, _ in held),
        pods_per_replica=declared.pods_per_replica,
        slots_per_replica=declared.slots_per_replica,
        gpus=sum((pod.gpus for pod, _ in held), NOTHING),
        autoscaler=autoscaler,
        budgets=_budgets(budgets, templates),
        spread=_spread(templates),
        images=_images(templates),
        annotations=declared.annotations,
        barred_nodes=find_barred([item for _, item in held[:1]] or templates, places),
        is_tied=is_tied,
        surge_below=declared.surge_below,
    )


def _budgets(budgets: Sequence[KubeObject], templates: Sequence[KubeObject]) -> tuple[DisruptionBudget, ...]:
    found = [budget for template in templates for budget in read_budgets(budgets, _labels(template))]
    return tuple(dict.fromkeys(found))


def _spread(templates: Sequence[KubeObject]) -> tuple[PodSpread, ...]:
    rules = [rule for template in templates for rule in read_spread(read_mapping(template, "spec"), _labels(template))]
    return tuple(dict.fromkeys(rules))


def _labels(template: KubeObject) -> Mapping[str, Any]:
    return read_mapping(template, "metadata", "labels")


def _images(templates: Sequence[KubeObject]) -> tuple[str, ...]:
    """Returns the images of containers that ask for GPUs, or of all where none does: sidecars tell nothing."""
    containers = [container for each in templates for container in read_list(each, "spec", "containers")]
    with_gpus = [container for container in containers if read_slots({"containers": [container]})]
    return tuple(dict.fromkeys(read_text(container, "image") for container in with_gpus or containers))


def _ours(item: KubeObject) -> dict[str, str]:
    found = read_mapping(item, "metadata", "annotations")
    return {key: value for key, value in found.items() if key.startswith(OURS) and isinstance(value, str)}
