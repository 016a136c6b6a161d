"""Reads Kubernetes objects into an estate. Pure: it asks no server, and the same objects give the same estate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from clusters.estate import NOTHING, ClusterWorkload, Estate, GpuNode, GpuPod, UnknownFigure, WorkloadName
from clusters.objects import (
    KINDS,
    ClusterObjects,
    KubeObject,
    name_of,
    namespace_of,
    read_list,
    read_mapping,
    read_text,
)
from clusters.reading.autoscalers import read_autoscalers
from clusters.reading.equal_parts import add_parts, read_equal_parts
from clusters.reading.gpu_nodes import name_accelerators, read_node
from clusters.reading.owners import REPLICA_LABEL, OwnedPod, OwnerIndex
from clusters.reading.placement import find_ties, read_place
from clusters.reading.requests import asks_by_claim, read_slots, shares_by_annotation
from clusters.reading.slices import ClaimedGpus, read_claims, read_slices
from clusters.reading.workloads import Declared, read_declared, workload_of

OVER = ("Succeeded", "Failed")  # phases in which a pod holds nothing
NO_CLAIM = ClaimedGpus(NOTHING, ())


def read_estate(objects: ClusterObjects) -> Estate:
    """Returns the estate, with a sentence for everything that the objects leave open."""
    nodes, unknown = _read_nodes(objects)
    by_name = {node.name: node for node in nodes}
    autoscalers = read_autoscalers(objects)
    index = OwnerIndex(objects, frozenset(autoscalers))
    claims = read_claims(objects.of("ResourceClaim"), objects.of("ResourceSlice"))
    held: dict[WorkloadName, list[tuple[GpuPod, KubeObject]]] = defaultdict(list)
    owned: dict[WorkloadName, OwnedPod] = {}
    pods = [item for item in objects.of("Pod") if read_text(item, "status", "phase") not in OVER]
    parts = _count_parts(pods, by_name)
    for item in pods:
        uid = read_text(item, "metadata", "uid")
        claimed = claims.get(uid, NO_CLAIM)
        slots = read_slots(read_mapping(item, "spec"))
        if not slots and not claimed.devices and uid not in parts:
            unknown += [*_unknown_claim(item, objects), *_unknown_part(item)]
            continue
        owner = index.find_owners(item)
        owned.setdefault(owner.workload, owner)
        pod = _pod(item, owner.workload, slots, claimed, by_name)
        if uid in parts:
            pod = replace(pod, gpus=pod.gpus + parts[uid], uses_part=shares_by_annotation(item))
        held[owner.workload].append((pod, item))
        unknown += _unknown_place(pod, by_name)
    declared = read_declared(objects)
    for name, known in declared.items():  # scaled to nothing at the moment
        if known.slots_per_replica and name not in held:
            held[name], owned[name] = [], OwnedPod(name, True, known.owners)
    budgets: dict[str, list[KubeObject]] = defaultdict(list)
    for item in objects.of("PodDisruptionBudget"):
        budgets[namespace_of(item)].append(item)
    places = [read_place(item) for item in objects.of("Node") if name_of(item) in by_name]
    samples = {
        name: [item for _, item in found] or (list(declared[name].templates) if name in declared else [])
        for name, found in held.items()
    }
    ties = find_ties(samples)
    workloads = []
    for name in sorted(held):
        known = declared.get(name) or Declared.count_pods([item for _, item in held[name]])
        rules = budgets.get(name.namespace, [])
        workloads.append(
            workload_of(owned[name], held[name], known, autoscalers.get(name), rules, places, is_tied=name in ties)
        )
    return Estate(
        nodes=nodes,
        workloads=tuple(workloads),
        pods=tuple(pod for name in sorted(held) for pod, _ in sorted(held[name], key=lambda found: found[0].name)),
        unknown=(
            *objects.unread,
            *unknown,
            *_unknown_holders(nodes, held),
            *(found for each in workloads for found in _unknown_scale(each)),
        ),
        unread_kinds=frozenset(resource.kind for resource in KINDS if resource.kind not in objects.lists),
    )


def _read_nodes(objects: ClusterObjects) -> tuple[tuple[GpuNode, ...], list[UnknownFigure]]:
    slices = read_slices(objects.of("ResourceSlice"))
    found: list[GpuNode] = []
    unknown: list[UnknownFigure] = []
    for item in objects.of("Node"):
        unknown += name_accelerators(item)
        node, open_figures = read_node(item, slices.get(name_of(item)))
        if node is not None:
            found.append(node)
            unknown += open_figures
    return tuple(sorted(found, key=lambda node: node.name)), unknown


def _count_parts(pods: Sequence[KubeObject], nodes: Mapping[str, GpuNode]) -> dict[str, Fraction]:
    """Returns by UID what pods hold more, or less where they reserve for others what KAI's scheduler divides."""
    found = read_equal_parts(pods)
    by_uid = {read_text(item, "metadata", "uid"): item for item in pods}
    reserved = {uid: _count_held(by_uid[uid], nodes) for uid in found.reserving}
    given = {uid: -held for uid, held in reserved.items()}
    return given | {uid: add_parts(used, reserved) for uid, used in found.used.items()}


def _count_held(item: KubeObject, nodes: Mapping[str, GpuNode]) -> Fraction:
    """Returns the GPUs of its node that a pod holds by what it asks for."""
    node = nodes.get(read_text(item, "spec", "nodeName"))
    parts = {offer.resource: offer.gpus_per_slot for offer in node.offers} if node else {}
    slots = read_slots(read_mapping(item, "spec"))
    return sum((count * parts.get(resource, NOTHING) for resource, count in slots.items()), NOTHING)


def _pod(
    item: KubeObject,
    workload: WorkloadName,
    slots: Mapping[str, int],
    claimed: ClaimedGpus,
    nodes: Mapping[str, GpuNode],
) -> GpuPod:
    place = read_text(item, "spec", "nodeName")
    node = nodes.get(place)
    ready = any(
        read_text(condition, "type") == "Ready" and read_text(condition, "status") == "True"
        for condition in read_list(item, "status", "conditions")
    )
    replica = read_text(item, "metadata", "labels", REPLICA_LABEL) or name_of(item)
    held = _count_held(item, nodes) + claimed.gpus if node else Fraction(0)
    return GpuPod(namespace_of(item), name_of(item), workload, place, slots, claimed.devices, held, replica, ready)


def _unknown_claim(item: KubeObject, objects: ClusterObjects) -> list[UnknownFigure]:
    """Returns a sentence if the pod may hold GPUs by claims that were not read."""
    if "ResourceClaim" in objects.lists or not asks_by_claim(read_mapping(item, "spec")):
        return []
    reason = "it holds devices by claims that could not be read, perhaps GPUs"
    subject = f"pod {namespace_of(item)}/{name_of(item)}"
    return [UnknownFigure(subject, reason, "allow `list` of resourceclaims.resource.k8s.io")]


def _unknown_part(item: KubeObject) -> list[UnknownFigure]:
    """Returns a sentence if the pod is to share a GPU by an annotation, and nobody is seen to reserve one for it."""
    if not shares_by_annotation(item) or not read_text(item, "spec", "nodeName"):
        return []
    reason = "it shares a GPU by an annotation of KAI's scheduler, and no pod was read that reserves one for it"
    subject = f"pod {namespace_of(item)}/{name_of(item)}"
    return [UnknownFigure(subject, reason, "allow `list` of pods where KAI reserves GPUs")]


def _unknown_place(pod: GpuPod, nodes: Mapping[str, GpuNode]) -> list[UnknownFigure]:
    subject = f"pod {pod.namespace}/{pod.name}"
    if not pod.node:
        return []
    node = nodes.get(pod.node)
    if node is None:
        reason = f"it holds GPUs of node {pod.node}, which was not read or shows no GPUs"
        return [UnknownFigure(subject, reason, "allow `list` of nodes, or see why that node has lost its GPUs")]
    missing = sorted(pod.slots.keys() - {offer.resource for offer in node.offers})
    if missing:
        reason = f"it holds {', '.join(missing)}, which node {pod.node} does not offer"
        return [UnknownFigure(subject, reason, "see whether sharing or MIG was changed there while it ran")]
    return []


def _unknown_holders(
    nodes: tuple[GpuNode, ...], held: Mapping[WorkloadName, list[tuple[GpuPod, KubeObject]]]
) -> list[UnknownFigure]:
    by_node: dict[str, Fraction] = defaultdict(Fraction)
    for pods in held.values():
        for pod, _ in pods:
            by_node[pod.node] += pod.gpus
    remedy = "its labels may be old, or it was cut otherwise while they ran; its price is divided by what they hold"
    return [
        UnknownFigure(f"node {node.name}", f"its pods hold {by_node[node.name]} GPUs of {node.gpus}", remedy)
        for node in nodes
        if by_node[node.name] > node.gpus
    ]


def _unknown_scale(workload: ClusterWorkload) -> list[UnknownFigure]:
    if workload.is_scalable and workload.replicas is None:
        reason = "its object could not be read, so declared replicas, group size and rules are missing"
        return [UnknownFigure(f"workload {workload.name}", reason, f"allow `list` of {workload.name.kind}s")]
    return []
