"""Where pods may not stand, and what ties them to their place: selectors, taints, volumes, and other pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from clusters.estate import WorkloadName
from clusters.objects import KubeObject, name_of, read_field, read_list, read_mapping, read_text
from clusters.reading.rules import holds, selects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEPT_EFFECTS = ("NoSchedule", "NoExecute")
PASSING_TAINTS = "node.kubernetes.io/"  # of the node's state, which its conditions and its cordon say as well


class PodPlace(NamedTuple):
    """A node with GPUs as pods see it: its labels, and the taints that keep pods away."""

    name: str
    labels: Mapping[str, Any]
    taints: tuple[object, ...]


def read_place(node: KubeObject) -> PodPlace:
    taints = tuple(
        taint
        for taint in read_list(node, "spec", "taints")
        if read_text(taint, "effect") in KEPT_EFFECTS and not read_text(taint, "key").startswith(PASSING_TAINTS)
    )
    return PodPlace(name_of(node), read_mapping(node, "metadata", "labels"), taints)


def find_barred(pods: Sequence[KubeObject], places: Iterable[PodPlace]) -> frozenset[str]:
    """Returns the nodes on which one of these pods may not stand, by selectors, node affinity and taints."""
    rules = [_read_rules(read_mapping(pod, "spec")) for pod in pods]
    return frozenset(place.name for place in places if not all(rule.admits(place) for rule in rules))


class PlaceRules(NamedTuple):
    """What a pod's spec says of the nodes on which it may stand."""

    selector: Mapping[str, Any]
    terms: tuple[object, ...] | None  # of node affinity; None: there is none
    tolerations: tuple[object, ...]

    def admits(self, place: PodPlace) -> bool:
        labels = place.labels
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        if self.terms is not None and not any(_term_holds(term, labels, place.name) for term in self.terms):
            return False
        return all(any(_tolerates(each, taint) for each in self.tolerations) for taint in place.taints)


def _read_rules(spec: Mapping[str, Any]) -> PlaceRules:
    affinity = read_mapping(spec, "affinity", "nodeAffinity", REQUIRED)
    return PlaceRules(
        read_mapping(spec, "nodeSelector"),
        tuple(read_list(affinity, "nodeSelectorTerms")) if affinity else None,
        tuple(read_list(spec, "tolerations")),
    )


def _term_holds(term: object, labels: Mapping[str, Any], name: str) -> bool:
    """Returns whether a term of node affinity takes the node; one with operators that are not read takes none."""
    by_label, by_field = read_list(term, "matchExpressions"), read_list(term, "matchFields")
    rules = [(rule, labels) for rule in by_label] + [(rule, {"metadata.name": name}) for rule in by_field]
    known = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
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
