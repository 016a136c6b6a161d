"""Who sets the replicas of a workload: HorizontalPodAutoscalers, and KEDA's ScaledObjects, which own some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusters.estate import Autoscaler, WorkloadName
from clusters.objects import (
    ClusterObjects,
    KubeObject,
    name_of,
    namespace_of,
    read_field,
    read_list,
    read_mapping,
    read_text,
    read_whole,
)

KEDA_MOST = 100  # KEDA's own, where a ScaledObject names none
PAUSED, PAUSED_REPLICAS = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"


def read_autoscalers(objects: ClusterObjects) -> dict[WorkloadName, Autoscaler]:
    """Returns the autoscaler of each target. KEDA's stands for the HPA that KEDA made of it."""
    found: dict[WorkloadName, Autoscaler] = {}
    for item in objects.of("HorizontalPodAutoscaler"):
        made_by = [owner for owner in read_list(item, "metadata", "ownerReferences") if read_text(owner, "kind")]
        keda = next((read_text(owner, "name") for owner in made_by if read_text(owner, "kind") == "ScaledObject"), "")
        found[target_of(item)] = Autoscaler(
            "ScaledObject" if keda else "HorizontalPodAutoscaler",
            keda or name_of(item),
            _least_by_hpa(item, is_of_keda=bool(keda)),
            _bound(item, "maxReplicas", 1),
            tuple(_metrics(item)),
        )
    for item in objects.of("ScaledObject"):
        annotations = read_mapping(item, "metadata", "annotations")
        found[target_of(item)] = Autoscaler(
            "ScaledObject",
            name_of(item),
            _bound(item, "minReplicaCount", 0),
            _bound(item, "maxReplicaCount", KEDA_MOST),
            tuple(read_text(trigger, "type") for trigger in read_list(item, "spec", "triggers")),
            is_paused=PAUSED_REPLICAS in annotations or has_paused(annotations),
        )
    return found


def has_paused(annotations: Mapping[str, object]) -> bool:
    """Returns whether KEDA has deleted its HPA and writes nothing, as the annotations of its ScaledObject say."""
    return str(annotations.get(PAUSED, "")).lower() in ("true", "1", "t")


def _least_by_hpa(item: KubeObject, *, is_of_keda: bool) -> int:
    """Returns the lower bound. No HPA of KEDA's says less than 1: where its ScaledObject is not read, it may say 0."""
    least = _bound(item, "minReplicas", 1)
    return 0 if is_of_keda and least == 1 else least


def target_of(item: KubeObject) -> WorkloadName:
    """Returns the workload that an autoscaler scales."""
    reference = read_mapping(item, "spec", "scaleTargetRef")
    return WorkloadName(namespace_of(item), read_text(reference, "kind") or "Deployment", read_text(reference, "name"))


def _bound(item: KubeObject, field: str, usual: int) -> int:
    found = read_whole(item, "spec", field)
    return usual if found is None else found


def _metrics(item: KubeObject) -> Iterable[str]:
    for metric in read_list(item, "spec", "metrics"):
        kind = read_text(metric, "type")
        part = kind[:1].lower() + kind[1:]
        name = read_text(metric, part, "metric", "name") or read_text(metric, part, "name")
        yield name or read_text(read_field(metric, part), "container") or kind
