"""Where pods may not stand, and what ties them to their place: selectors, taints, volumes, and other pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusters.estate import WorkloadName
from clusters.objects import KubeObject, name_of, read_field, read_list, read_mapping, read_text
from clusters.reading.rules import holds, selects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEPT_EFFECTS = ("NoSchedule", "NoExecute")
PASSING_TAINTS = "node.kubernetes.io/"  # of the node's state, which its conditions and its cordon say as well


def find_barred(pods: Sequence[KubeObject], nodes: Iterable[KubeObject]) -> frozenset[str]:
    """Returns the nodes on which one of these pods may not stand, by selectors, node affinity and taints."""
    specs = [read_mapping(pod, "spec") for pod in pods]
    return frozenset(name_of(node) for node in nodes if not all(_may_stand(spec, node) for spec in specs))


def _may_stand(spec: KubeObject, node: KubeObject) -> bool:
    labels = read_mapping(node, "metadata", "labels")
    if any(labels.get(key) != value for key, value in read_mapping(spec, "nodeSelector").items()):
        return False
    affinity = read_mapping(spec, "affinity", "nodeAffinity", REQUIRED)
    if affinity and not any(
        _term_holds(term, labels, name_of(node)) for term in read_list(affinity, "nodeSelectorTerms")
    ):
        return False
    taints = [
        taint
        for taint in read_list(node, "spec", "taints")
        if read_text(taint, "effect") in KEPT_EFFECTS and not read_text(taint, "key").startswith(PASSING_TAINTS)
    ]
    return all(any(_tolerates(each, taint) for each in read_list(spec, "tolerations")) for taint in taints)


def _term_holds(term: object, labels: Mapping[str, Any], name: str) -> bool:
    """Returns whether a term of node affinity takes the node; one with operators that are not read takes none."""
    by_label, by_field = read_list(term, "matchExpressions"), read_list(term, "matchFields")
    rules = [(rule, labels) for rule in by_label] + [(rule, {"metadata.name": name}) for rule in by_field]
    known = ("In", "NotIn", "Exists", "DoesNotExist")
    return bool(rules) and all(read_text(rule, "operator") in known and holds(rule, values) for rule, values in rules)


def _tolerates(toleration: object, taint: object) -> bool:
    if read_text(toleration, "effect") not in ("", read_text(taint, "effect")):
        return False
    key = read_text(toleration, "key")
    if read_text(toleration, "operator") == "Exists":
        return key in ("", read_text(taint, "key"))
    return key == read_text(taint, "key") and read_text(toleration, "value") == read_text(taint, "value")


def find_ties(pods: Mapping[WorkloadName, Sequence[KubeObject]]) -> frozenset[WorkloadName]:
    """Returns the workloads whose pods cannot be moved by what is read: each of its pods is given, or its template.

    They keep volumes of their node, or of which no two nodes are seen to share one, or must stand beside or apart
    from pods of other workloads, or those from them.
    """
    samples = {name: [min(items, key=name_of), max(items, key=name_of)] for name, items in pods.items() if items}
    tied = {name for name, items in pods.items() if _has_own_volume(items)}
    for name, items in samples.items():
        for item in items:
            own = read_mapping(item, "metadata", "labels")
            if read_list(item, "spec", "affinity", "podAffinity", REQUIRED):
                tied.add(name)
            for rule in read_list(item, "spec", "affinity", "podAntiAffinity", REQUIRED):
                selector = read_field(rule, "labelSelector")
                others = {
                    other
                    for other, those in samples.items()
                    if other != name
                    and any(selects(selector, read_mapping(each, "metadata", "labels")) for each in those)
                }
                if others or not selects(selector, own):
                    tied |= {name, *others}
    return frozenset(tied)


def _has_own_volume(pods: Sequence[KubeObject]) -> bool:
    nodes = {read_text(pod, "spec", "nodeName") for pod in pods} - {""}
    return any(_is_of_node(volume, len(nodes)) for pod in pods[:1] for volume in read_list(pod, "spec", "volumes"))


def _is_of_node(volume: object, nodes: int) -> bool:
    """A claim that pods on several nodes use together is not of one node."""
    return bool(read_mapping(volume, "hostPath") or (read_mapping(volume, "persistentVolumeClaim") and nodes < 2))
