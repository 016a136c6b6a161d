"""Who sets the replicas of a workload, besides us: while somebody does, nothing is written, and a sentence says why.

Two kinds of evidence count. Objects that scale it: an HPA, KEDA's ScaledObject, an operator that made it, a queue of
Kueue. And what the API server noted of who wrote `.spec.replicas`: a manager that declares it writes it again, so it is
an owner for as long as it has the field; a person's `kubectl scale` is over, so it holds us for ten minutes only. But a
tool that deploys the workload stays its owner when another scales past it, until an annotation says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from clusters.estate import WorkloadName
from clusters.objects import (
    ClusterObjects,
    KubeObject,
    name_of,
    namespace_of,
    read_field,
    read_list,
    read_mapping,
    read_text,
)
from clusters.reading.autoscalers import PAUSED, PAUSED_REPLICAS, has_paused, target_of
from clusters.reading.workloads import GROUPED
from clusters.scaling.field_writers import declares_again, is_ours, say_declared, say_managed
from clusters.scaling.sightings import Sighting, read_generation
from clusters.server_dates import read_stamp

QUIET = timedelta(minutes=10)  # after a change by somebody else
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True)
class FieldWriter:
    """One entry of managedFields: who wrote, how, and whether replicas are among what it wrote last."""

    manager: str
    is_applied: bool
    written_at: datetime | None  # None: through `scale`, of which the server keeps no time
    has_replicas: bool


UNKNOWN_WRITER = FieldWriter("somebody", is_applied=False, written_at=None, has_replicas=True)


def read_writers(item: KubeObject) -> list[FieldWriter]:
    """Returns who wrote what is declared; the status is its controller's."""
    return [
        FieldWriter(
            read_text(entry, "manager") or "a manager without a name",
            read_text(entry, "operation") == "Apply",
            read_stamp(read_text(entry, "time")),
            read_field(entry, "fieldsV1", "f:spec", "f:replicas") is not None,
        )
        for entry in read_list(item, "metadata", "managedFields")
        if read_text(entry, "subresource") != "status"
    ]


def find_owner(item: KubeObject, kind: str, objects: ClusterObjects) -> str:
    """Returns the sentence on what sets the replicas now and will again; empty if nobody does."""
    tests: tuple[Callable[[], str], ...] = (
        lambda: "it is being deleted" if read_text(item, "metadata", "deletionTimestamp") else "",
        lambda: _say_made(item),
        lambda: _say_scaled(item, kind, objects),
        lambda: _say_queued(item, kind),
        lambda: _say_declared(item),
        lambda: _say_managed(item),
        lambda: _say_applied(item),
    )
    return next(filter(None, (test() for test in tests)), "")


def find_recent_change(item: KubeObject, now: datetime, sighting: Sighting | None) -> str:
    """Returns the sentence on a change by somebody else that is less than ten minutes ago, or may be.

    Of nobody known, as after a manifest that no longer has replicas, and of a write through `scale` the server keeps no
    time: then it counts since when the workload is seen as it is.
    """
    holders = [writer for writer in read_writers(item) if writer.has_replicas] or [UNKNOWN_WRITER]
    for writer in holders:
        if is_ours(writer.manager):
            continue
        since = writer.written_at
        if since is None:
            is_known = sighting is not None and sighting.generation == read_generation(item)
            since = sighting.since if sighting and is_known else now
        if now - since <= QUIET:  # both are whole seconds
            when = f"at {since:%H:%M:%S}" if writer.written_at else f"at an unknown time before {since:%H:%M:%S}"
            return (
                f"{writer.manager} set its replicas {when} by the API server's clock, "
                f"so nothing is written until {since + QUIET:%H:%M:%S}"
            )
    return ""


def _say_made(item: KubeObject) -> str:
    for owner in read_list(item, "metadata", "ownerReferences"):
        if read_field(owner, "controller") is True:
            maker = f"{read_text(owner, 'kind')} {namespace_of(item)}/{read_text(owner, 'name')}"
            return f"{maker} made it and sets its replicas; scale that one"
    return ""


def _say_scaled(item: KubeObject, kind: str, objects: ClusterObjects) -> str:
    name = WorkloadName(namespace_of(item), kind, name_of(item))
    for listed, say in SCALERS.items():
        if listed not in objects.lists:
            return f"it is unknown whether a {listed} owns its replicas: their list was not read; allow it"
        for found in objects.of(listed):
            target = _read_taken(found) if listed == "Rollout" else target_of(found)
            if target == name and (sentence := say(found)):
                return sentence
    return ""


def _read_taken(rollout: KubeObject) -> WorkloadName:
    """Returns the Deployment whose pods a Rollout takes."""
    reference = read_mapping(rollout, "spec", "workloadRef")
    return WorkloadName(namespace_of(rollout), read_text(reference, "kind"), read_text(reference, "name"))


def _say_rollout(found: KubeObject) -> str:
    name = f"Argo's Rollout {namespace_of(found)}/{name_of(found)}"
    return f"{name} takes its pods and scales it to none; take its annotations off"


def _say_hpa(found: KubeObject) -> str:
    return (
        f"HPA {namespace_of(found)}/{name_of(found)} owns its replicas; delete that HPA, "
        "or let it follow the metric gpuwright_desired_replicas"
    )


def _say_keda(found: KubeObject) -> str:
    annotations = read_mapping(found, "metadata", "annotations")
    name = f"KEDA's ScaledObject {namespace_of(found)}/{name_of(found)}"
    if PAUSED_REPLICAS in annotations:
        kept = f"{name} is paused at {annotations[PAUSED_REPLICAS]} replicas and keeps them"
        return f"{kept}; replace {PAUSED_REPLICAS} by {PAUSED}, or delete it"
    if has_paused(annotations):
        return ""
    return (
        f"{name} owns its replicas; annotate it with {PAUSED}=true, delete it, "
        "or let it follow the metric gpuwright_desired_replicas"
    )


# The objects that may scale another one, in the order in which they are named.
SCALERS: Mapping[str, Callable[[KubeObject], str]] = {
    "ScaledObject": _say_keda,
    "HorizontalPodAutoscaler": _say_hpa,
    "Rollout": _say_rollout,
}


def _say_queued(item: KubeObject, kind: str) -> str:
    queue = read_text(item, "metadata", "labels", QUEUE_LABEL)
    if not queue:
        return ""
    unit = "group" if kind == GROUPED else "pod"
    return (
        f"Kueue admits each {unit} of it by the queue {queue}, so what is written may wait there; "
        f"take the label {QUEUE_LABEL} off, or scale it by hand"
    )


def _say_declared(item: KubeObject) -> str:
    for writer in read_writers(item):
        is_active = writer.is_applied or declares_again(writer.manager)
        if writer.has_replicas and is_active and not is_ours(writer.manager):
            return say_declared(item, writer.manager, is_applied=writer.is_applied)
    return ""


def _say_managed(item: KubeObject) -> str:
    """A person who scales past a tool has not taken the replicas out of the tool's manifests."""
    writers = read_writers(item)
    passing = next((each for each in writers if each.has_replicas and not is_ours(each.manager)), None)
    return say_managed(item, frozenset(each.manager for each in writers), passing.manager) if passing else ""


def _say_applied(item: KubeObject) -> str:
    """What `kubectl apply` applied last is written again by the next one, even if somebody has scaled it since."""
    if next(_read_last_applied(item), None) is None:
        return ""
    words = f"{item.get('kind', '')} {name_of(item)}".strip().replace(" ", "/").lower()
    return (
        "the manifest that kubectl apply has applied declares replicas, and the next apply sets them back; take "
        f"`replicas` out by `kubectl -n {namespace_of(item)} apply edit-last-applied {words}`, then out of the manifest"
    )


def _read_last_applied(item: KubeObject) -> Iterator[int]:
    try:
        applied = json.loads(read_text(item, "metadata", "annotations", LAST_APPLIED))
    except (ValueError, RecursionError):
        return
    found = read_field(applied, "spec", "replicas")
    if isinstance(found, int):
        yield found
