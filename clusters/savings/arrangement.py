"""How replicas stand on nodes of one kind, and where one more finds room."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TypeAlias

from clusters.estate import GpuPod, WorkloadName
from clusters.savings.floors import ReplicaRules

Slots: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PackedNode:
    """A node of the kind: what it offers, and whether it may come free and may take more."""

    name: str
    slots: Slots
    nano_per_hour: int  # that its end saves
    may_go: bool
    takes_pods: bool


@dataclass(frozen=True, slots=True)
class AlikeNodes:
    """Nodes between which pods may move, with all that stands on them and all that waits for room on them."""

    nodes: tuple[PackedNode, ...]
    pods: tuple[GpuPod, ...]  # with a node
    waiting: tuple[GpuPod, ...]  # that would take a place here
    rules: Mapping[WorkloadName, ReplicaRules]
    sizes: Mapping[WorkloadName, Slots]  # of a replica that may move
    after_loss: Mapping[WorkloadName, int] = field(default_factory=dict)  # that must stand when any node is lost


@dataclass(slots=True)
class Arrangement:
    """How replicas stand once some nodes are gone."""

    free: dict[str, Counter[str]]
    replicas: dict[WorkloadName, dict[str, frozenset[str]]]  # workload -> replica -> the nodes that it needs
    added: int = 0
    waiting: dict[WorkloadName, Counter[str]] = field(default_factory=dict)  # nodes that pods took which wait now

    def count(self, workload: WorkloadName) -> int:
        return len(self.replicas[workload])

    def on_node(self, workload: WorkloadName) -> Counter[str]:
        return Counter(node for nodes in self.replicas.get(workload, {}).values() for node in nodes)

    def survivors(self, workload: WorkloadName) -> int:
        """Returns how many replicas stay when the node that matters most to them is lost."""
        return self.count(workload) - max(self.on_node(workload).values(), default=0)


def stand_today(kind: AlikeNodes) -> Arrangement:
    """Returns how all stands now, with what waits where it finds room."""
    found = Arrangement({node.name: Counter(node.slots) for node in kind.nodes}, defaultdict(dict))
    nodes: dict[tuple[WorkloadName, str], set[str]] = defaultdict(set)
    for pod in kind.pods:
        nodes[pod.workload, pod.replica].add(pod.node)
        found.free[pod.node].subtract(pod.slots)
    for (name, replica), places in nodes.items():
        found.replicas[name][replica] = frozenset(places)
    room = NodeRoom(found.free, [node.name for node in kind.nodes if node.takes_pods])
    for pod in kind.waiting:
        room.take(pod.slots, Counter(), kind.rules[pod.workload])
    return found


def find_rollable(kind: AlikeNodes, found: Arrangement) -> frozenset[WorkloadName]:
    """Returns the workloads whose rollouts go on: they may end a pod first, or one more finds room."""
    takers = [node.name for node in kind.nodes if node.takes_pods and node.name in found.free]
    rollable = set()
    for name in found.replicas:
        rules, on_node = kind.rules[name], found.on_node(name) + found.waiting.get(name, Counter())
        if found.count(name) >= rules.surge_below or any(
            node not in rules.barred_nodes
            and (rules.most_per_node is None or on_node[node] < rules.most_per_node)
            and all(found.free[node][resource] >= count for resource, count in kind.sizes[name].items())
            for node in takers
        ):
            rollable.add(name)
    return frozenset(rollable)


class NodeRoom:
    """Free slots of nodes, in the order in which pods take them, so that few nodes are looked at for each pod."""

    def __init__(self, free: dict[str, Counter[str]], takers: Iterable[str]) -> None:
        self._free = free  # is changed, too
        self._order = sorted((sum(free[node].values()), node) for node in takers)  # the fullest first
        self._takers = frozenset(node for _, node in self._order)
        self._changed: dict[str, Counter[str]] | None = None  # of a copy: what differs

    def without(self, lost: str) -> NodeRoom:
        """Returns a copy, in which this node takes nothing. It changes nothing of the original."""
        found = copy(self)
        found._order = [*self._order]
        found._changed = {}
        if lost in self._takers:
            found._forget(lost)
            found._takers = self._takers - {lost}
        return found

    def take(self, slots: Slots, on_node: Counter[str], rules: ReplicaRules) -> str | None:
        """Takes the place with the fewest of its kind, and of those the fullest; None: there is no room."""
        wanted, best, cap, barred = list(slots.items()), None, rules.most_per_node, rules.barred_nodes
        for at in range(bisect_left(self._order, (sum(slots.values()), "")), len(self._order)):
            node = self._order[at][1]
            here, beside = self._read(node), on_node[node]
            if (cap is not None and beside >= cap) or node in barred or (best is not None and beside >= best[0]):
                continue
            if all(here[resource] >= count for resource, count in wanted):
                best = beside, node
                if not beside:
                    break
        if best is None:
            return None
        self._change(best[1], {resource: -count for resource, count in wanted})
        return best[1]

    def give(self, node: str, slots: Slots) -> None:
        """Adds what a pod leaves on a node that takes pods."""
        if node in self._takers:
            self._change(node, slots)

    def _read(self, node: str) -> Counter[str]:
        found = self._changed.get(node) if self._changed else None
        return self._free[node] if found is None else found

    def _change(self, node: str, slots: Slots) -> None:
        self._forget(node)
        here = self._read(node)
        if self._changed is not None:
            here = self._changed[node] = Counter(here)
        here.update(slots)
        insort(self._order, (sum(here.values()), node))

    def _forget(self, node: str) -> None:
        del self._order[bisect_left(self._order, (sum(self._read(node).values()), node))]


def find_place(
    free: dict[str, Counter[str]], takers: Sequence[str], slots: Slots, on_node: Counter[str], rules: ReplicaRules
) -> str | None:
    """Takes the first place for one pod; None: there is no room."""
    return NodeRoom(free, takers).take(slots, on_node, rules)
