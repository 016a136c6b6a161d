"""Kubernetes objects of made-up clusters, as `kubectl get -o json` gives them; the demo is one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

Item = dict[str, Any]


def uid(*words: str) -> str:
    return str(uuid5(NAMESPACE_URL, "/".join(words)))


def heading(api: str, kind: str, namespace: str, name: str, owner: Item | None = None, **more: Any) -> Item:
    """The beginning of an object; `owner` is the object that controls it."""
    metadata: Item = {"name": name, "uid": uid(kind, namespace, name), **more}
    if namespace:
        metadata["namespace"] = namespace
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "controller": True,
            }
        ]  # fmt: skip
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def node(
    name: str,
    gpus: int,
    product: str,
    instance_type: str,
    *,
    memory_mib: int = 46068,
    replicas: int = 1,
    sharing: str = "none",
    region: str = "us-east-1",
    purchase: str = "ON_DEMAND",
    pool: str = "gpus",
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, int] | None = None,
) -> Item:
    """A node of a managed cluster with GPU feature discovery; `replicas` pods share each of its GPUs."""
    item = heading("v1", "Node", "", name)
    item["metadata"]["labels"] = {
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": region,
        "eks.amazonaws.com/capacityType": purchase,
        "eks.amazonaws.com/nodegroup": pool,
        "nvidia.com/gpu.product": product + ("-SHARED" if replicas > 1 else ""),
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": sharing,
        **(labels or {}),
    }
    offered = {"nvidia.com/gpu": gpus * replicas} if resources is None else resources
    amounts = {"cpu": "48", "memory": "384Gi", "pods": "110", **{key: str(count) for key, count in offered.items()}}
    item["spec"] = {"providerID": f"aws:///{region}a/i-{uid(name)[:8]}"}
    item["status"] = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return item


def container(image: str, gpus: int, resource: str = "nvidia.com/gpu") -> Item:
    asked = {resource: str(gpus)} if gpus else {}
    return {
        "name": image.split("/")[-1].split(":")[0],
        "image": image,
        "resources": {"limits": asked, "requests": asked},
    }


def pod_spec(image: str, gpus: int, resource: str = "nvidia.com/gpu") -> Item:
    return {"containers": [container(image, gpus, resource)]}


def pod(
    namespace: str,
    name: str,
    spec: Item,
    place: str,
    owner: Item | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Running",
) -> Item:
    """A pod on a node; an empty `place` leaves it waiting for one."""
    item = heading("v1", "Pod", namespace, name, owner, labels=dict(labels or {}))
    item["spec"] = {**spec, **({"nodeName": place} if place else {})}
    ready = phase == "Running" and place
    item["status"] = {
        "phase": phase if place else "Pending",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    return item


def deployment(
    namespace: str,
    name: str,
    spec: Item,
    places: Sequence[str],
    *,
    replicas: int | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Item | None = None,
) -> Iterator[Item]:
    """A Deployment, its ReplicaSet, one that is empty since the last rollout, and a pod at each place."""
    labels = {"app": name}
    item = heading("apps/v1", "Deployment", namespace, name, owner, annotations=dict(annotations or {}))
    item["spec"] = {
        "replicas": len(places) if replicas is None else replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    yield item
    for hashed, count in (("5d4f7c9b8", 0), ("7c6bd94f5f", len(places))):
        marked = {**labels, "pod-template-hash": hashed}
        replica_set = heading("apps/v1", "ReplicaSet", namespace, f"{name}-{hashed}", item, labels=marked)
        replica_set["spec"] = {
            "replicas": count,
            "selector": {"matchLabels": marked},
            "template": {"metadata": {"labels": marked}, "spec": spec},
        }
        yield replica_set
        for at, place in enumerate(places[:count]):
            yield pod(namespace, f"{name}-{hashed}-{at:05x}", spec, place, replica_set, marked)


def leader_worker_set(namespace: str, name: str, spec: Item, groups: Sequence[Sequence[str]]) -> Iterator[Item]:
    """A LeaderWorkerSet as its controller builds it: leaders of a StatefulSet, and one of workers for each leader."""
    api = "leaderworkerset.x-k8s.io/v1"
    item = heading(api, "LeaderWorkerSet", namespace, name)
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    size = len(groups[0])
    item["spec"] = {"replicas": len(groups), "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    yield item
    leaders = heading("apps/v1", "StatefulSet", namespace, name, item)
    leaders["spec"] = {"replicas": len(groups), "selector": {"matchLabels": labels}, "template": template}
    yield leaders
    for group, places in enumerate(groups):
        marked = {**labels, "leaderworkerset.sigs.k8s.io/name": name}
        marked["leaderworkerset.sigs.k8s.io/group-index"] = str(group)
        leader = pod(namespace, f"{name}-{group}", spec, places[0], leaders, marked)
        yield leader
        workers = heading("apps/v1", "StatefulSet", namespace, f"{name}-{group}", leader)
        workers["spec"] = {"replicas": size - 1, "selector": {"matchLabels": labels}, "template": template}
        yield workers
        for at, place in enumerate(places[1:], 1):
            yield pod(namespace, f"{name}-{group}-{at}", spec, place, workers, marked)


def autoscaler(namespace: str, name: str, least: int, most: int, kind: str = "Deployment") -> Item:
    item = heading("autoscaling/v2", "HorizontalPodAutoscaler", namespace, name)
    target = {"type": "AverageValue", "averageValue": "30"}
    item["spec"] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": "requests_per_second"}, "target": target}}],
    }
    return item


def scaled_object(namespace: str, name: str, least: int, most: int) -> Iterator[Item]:
    """KEDA's object, and the HPA that KEDA makes of it."""
    item = heading("keda.sh/v1alpha1", "ScaledObject", namespace, name)
    item["spec"] = {
        "scaleTargetRef": {"name": name}, "minReplicaCount": least, "maxReplicaCount": most,
        "triggers": [{"type": "prometheus"}],
    }  # fmt: skip
    yield item
    made = autoscaler(namespace, name, max(1, least), most)
    made["metadata"] = heading("", "", namespace, f"keda-hpa-{name}", item)["metadata"]
    yield made


def budget(namespace: str, name: str, **rule: int | str) -> Item:
    item = heading("policy/v1", "PodDisruptionBudget", namespace, name)
    item["spec"] = {"selector": {"matchLabels": {"app": name}}, **rule}
    return item


def apart(spec: Item, name: str, topology: str = "kubernetes.io/hostname") -> Item:
    """The same pods, two of which never share a node."""
    rule = {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": name}}}
    return {**spec, "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}
