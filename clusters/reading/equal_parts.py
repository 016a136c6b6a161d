"""GPUs that KAI's scheduler divides: one pod reserves each, and the pods of its group use it in equal parts.

What their annotations ask for is a rule of placement alone. Nothing enforces it, so n pods count as 1/n each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from clusters.objects import KubeObject, read_mapping, read_text
from clusters.reading.requests import read_slots, shares_by_annotation

GROUP = "runai-gpu-group"  # a label; of a pod with parts of several GPUs `runai-gpu-group/…` for each


@dataclass(frozen=True, slots=True)
class EqualParts:
    """Who reserves GPUs, and who uses them."""

    reserving: frozenset[str]  # UIDs of pods
    used: Mapping[str, Counter[str]]  # UID of a pod -> UIDs of those that reserve what it uses, with their sharers


def read_equal_parts(pods: Iterable[KubeObject]) -> EqualParts:
    """Returns what pods use of GPUs that others reserve; `pods` are those that run or wait."""
    reserving: dict[tuple[str, str], str] = {}  # by node and group
    using: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in pods:
        uid, node = read_text(pod, "metadata", "uid"), read_text(pod, "spec", "nodeName")
        if not uid or not node:
            continue
        for group in _list_groups(pod):
            if shares_by_annotation(pod):
                using[node, group].append(uid)
            elif read_slots(read_mapping(pod, "spec")):
                reserving[node, group] = uid
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for place, sharers in using.items():
        for uid in sharers if place in reserving else ():
            used[uid][reserving[place]] = len(sharers)
    return EqualParts(frozenset(reserving[place] for place in using if place in reserving), used)


def add_parts(used: Mapping[str, int], reserved: Mapping[str, Fraction]) -> Fraction:
    """Returns the GPUs that a pod uses, of those that others have reserved."""
    return sum((reserved.get(uid, Fraction(0)) / sharers for uid, sharers in used.items()), Fraction(0))


def _list_groups(pod: KubeObject) -> Collection[str]:
    labels = read_mapping(pod, "metadata", "labels")
    several = (key.removeprefix(f"{GROUP}/") for key in labels if key.startswith(f"{GROUP}/"))
    return {group: None for group in (*several, read_text(labels, GROUP)) if group}  # one may be named twice
