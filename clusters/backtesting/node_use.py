"""Which nodes of one kind are paid while replicas come and go: replicas stand somewhere, and empty nodes end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from clusters.estate import WorkloadName
from clusters.savings.arrangement import AlikeNodes, PackedNode, Slots, find_place
from clusters.savings.floors import ReplicaRules
from clusters.savings.packing import read_index

ADDED = "added "  # no name of a node has a space
MOST_TRIES = 8  # of nodes that could be emptied, after each change
Replica: TypeAlias = tuple[WorkloadName, str]


class ReplicaTarget(NamedTuple):
    """How many replicas are to stand, and how many of them on one node at most."""

    replicas: int
    most_per_node: int


class NodeUse:
    """The nodes of one kind. It begins with what stands now, and goes from one set of targets to the next.

    A replica takes a node that is paid already if one has room, else the cheapest node that is there, else one like
    the dearest that may go. Where all that stands on a node may move and finds room elsewhere, it moves.
    """

    def __init__(self, kind: AlikeNodes, decided: frozenset[WorkloadName]) -> None:
        self._nodes = {node.name: node for node in kind.nodes}
        self._free = {node.name: Counter(node.slots) for node in kind.nodes}
        self._rules, self._decided = dict(kind.rules), decided
        self._own_limits = {name: rule.most_per_node for name, rule in kind.rules.items()}
        self._fixed: Counter[str] = Counter()  # pods that stay where they are
        self._here: dict[str, set[Replica]] = defaultdict(set)
        self._replicas: dict[WorkloadName, dict[str, list[tuple[str, Slots]]]] = defaultdict(dict)
        self._targets: dict[WorkloadName, ReplicaTarget] = {}
        self.moves = self._added = 0
        for pod in kind.pods:
            self._free[pod.node].subtract(pod.slots)
            if pod.workload in decided or self._rules[pod.workload].is_movable:
                self._replicas[pod.workload].setdefault(pod.replica, []).append((pod.node, pod.slots))
                self._here[pod.node].add((pod.workload, pod.replica))
            else:
                self._fixed[pod.node] += 1
        self._shapes = {
            name: [slots for _, slots in next(iter(all_.values()))] for name, all_ in self._replicas.items()
        }
        takers = [node.name for node in kind.nodes if node.takes_pods]
        for pod in kind.waiting:
            place = find_place(self._free, takers, pod.slots, Counter(), self._rules[pod.workload])
            self._fixed.update([place] if place else [])
        for name in self._replicas:
            self._limit(name, max(self._count_on_node(name).values()))
        self._may_empty = self._empty_nodes()

    @property
    def workloads(self) -> frozenset[WorkloadName]:
        return frozenset(self._replicas)

    def count(self, name: WorkloadName) -> int:
        return len(self._replicas[name])

    def count_added(self) -> int:
        """Returns the nodes that are paid beyond those that stood at the beginning."""
        return sum(node.name.startswith(ADDED) and self._is_paid(node) for node in self._nodes.values())

    def nano_per_hour(self, absent: frozenset[str]) -> int:
        """Returns what the nodes cost that are needed, or paid anyway.

        Of nodes that were absent only those count that replicas need whose number is decided.
        """
        return sum(
            node.nano_per_hour
            for node in self._nodes.values()
            if self._is_paid(node)
            and (node.name not in absent or any(name in self._decided for name, _ in self._here[node.name]))
        )

    def settle(self, targets: Mapping[WorkloadName, ReplicaTarget]) -> None:
        """Removes and adds replicas until as many stand as are wanted, or no more finds room."""
        for name, target in sorted(targets.items()):
            if target == self._targets.get(name):
                continue
            self._targets[name], self._may_empty = target, True
            self._limit(name, target.most_per_node)
            while self.count(name) > target.replicas:
                self._remove(name, self._choose_leaving(name, target.most_per_node))
            self._spread(name, target.most_per_node)
            while self.count(name) < target.replicas and self._add(name, f"new-{self.count(name)}"):
                pass
        if self._may_empty:
            self._may_empty = self._empty_nodes()

    def _limit(self, name: WorkloadName, most_per_node: int) -> None:
        own = self._own_limits[name]
        self._rules[name] = replace(
            self._rules[name], most_per_node=most_per_node if own is None else min(own, most_per_node)
        )

    def _is_paid(self, node: PackedNode) -> bool:
        return not node.may_go or bool(self._fixed[node.name] or self._here[node.name])

    def _count_on_node(self, name: WorkloadName) -> Counter[str]:
        return Counter(node for pods in self._replicas[name].values() for node in {node for node, _ in pods})

    def _choose_leaving(self, name: WorkloadName, most_per_node: int) -> str:
        replicas = self._replicas[name]
        if self._rules[name].is_in_order:
            return max(replicas, key=read_index)
        on_node = self._count_on_node(name)

        def order(replica: str) -> tuple[bool, int, str]:
            node = replicas[replica][0][0]
            return on_node[node] <= most_per_node, self._fixed[node] + len(self._here[node]), replica

        return min(replicas, key=order)

    def _remove(self, name: WorkloadName, replica: str) -> list[tuple[str, Slots]]:
        pods = self._replicas[name].pop(replica)
        for node, slots in pods:
            self._free[node].update(slots)
            self._here[node].discard((name, replica))
        return pods

    def _stand(self, name: WorkloadName, replica: str, pods: list[tuple[str, Slots]], *, is_taken: bool) -> None:
        for node, slots in pods:
            if not is_taken:
                self._free[node].subtract(slots)
            self._here[node].add((name, replica))
        self._replicas[name][replica] = pods

    def _spread(self, name: WorkloadName, most_per_node: int) -> None:
        """Moves replicas from nodes that hold more of them than the loss of a node allows."""
        for node, count in self._count_on_node(name).items():
            crowded = sorted(replica for owner, replica in self._here[node] if owner == name)
            for replica in crowded[: max(0, count - most_per_node)] if self._rules[name].is_movable else ():
                pods = self._remove(name, replica)
                if self._add(name, replica):
                    self.moves += len(pods)
                else:
                    self._stand(name, replica, pods, is_taken=False)

    def _add(self, name: WorkloadName, replica: str, without: str = "") -> bool:
        """Finds room for all pods of a replica, or for none; no node is added or started instead of `without`."""
        while not without and replica in self._replicas[name]:
            replica += "-more"
        rules, on_node, placed = self._rules[name], self._count_on_node(name), list[tuple[str, Slots]]()
        for slots in self._shapes[name]:
            place = self._find_paid(slots, on_node, rules, without)
            if place is None and not without:
                place = self._find_started(slots, on_node, rules) or self._find_added(slots, on_node, rules)
            if place is None:
                for node, taken in placed:
                    self._free[node].update(taken)
                    self._here[node].discard((name, replica))
                return False
            placed.append((place, slots))
            self._here[place].add((name, replica))  # so that the node counts as paid for the replica's other pods
        self._stand(name, replica, placed, is_taken=True)
        return True

    def _find_paid(self, slots: Slots, on_node: Counter[str], rules: ReplicaRules, without: str) -> str | None:
        paid = [node.name for node in self._nodes.values() if node.takes_pods and self._is_paid(node)]
        return find_place(self._free, [name for name in paid if name != without], slots, on_node, rules)

    def _find_started(self, slots: Slots, on_node: Counter[str], rules: ReplicaRules) -> str | None:
        idle = [node for node in self._nodes.values() if node.takes_pods and not self._is_paid(node)]
        for node in sorted(idle, key=lambda node: (node.nano_per_hour, node.name)):
            if place := find_place(self._free, [node.name], slots, on_node, rules):
                return place
        return None

    def _find_added(self, slots: Slots, on_node: Counter[str], rules: ReplicaRules) -> str | None:
        """Takes one more node like those that are paid by the hour; None where none is, or it would be too small."""
        like = max((node for node in self._nodes.values() if node.may_go), key=_price, default=None)
        if like is None or any(like.slots.get(resource, 0) < count for resource, count in slots.items()):
            return None
        self._added += 1
        name = f"{ADDED}{self._added}"
        self._nodes[name] = replace(like, name=name, takes_pods=True)
        self._free[name] = Counter(like.slots)
        return find_place(self._free, [name], slots, on_node, rules)

    def _empty_nodes(self) -> bool:
        """Moves all that stands on a node elsewhere, where it may and finds room; the emptiest nodes first.

        Returns whether one came free, so that others may.
        """
        going = [
            node for node in self._nodes.values()
            if node.may_go and self._here[node.name] and not self._fixed[node.name]
            and all(self._rules[name].is_movable for name, _ in self._here[node.name])
        ]  # fmt: skip
        going.sort(key=lambda node: (len(self._here[node.name]), -node.nano_per_hour, node.name))
        return sum([self._empty(node.name) for node in going[:MOST_TRIES]]) > 0

    def _empty(self, node: str) -> bool:
        moved: list[tuple[WorkloadName, str, list[tuple[str, Slots]]]] = []
        for name, replica in sorted(self._here[node]):
            pods = self._remove(name, replica)
            if not self._add(name, replica, without=node):
                self._stand(name, replica, pods, is_taken=False)
                for other, earlier, places in reversed(moved):
                    self._remove(other, earlier)
                    self._stand(other, earlier, places, is_taken=False)
                return False
            moved.append((name, replica, pods))
        self.moves += len(moved)
        return True


def _price(node: PackedNode) -> tuple[int, str]:
    return node.nano_per_hour, node.name
