"""What stands once any one node is lost: replicas on other nodes, and those that find free room there again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from clusters.estate import WorkloadName
from clusters.savings.arrangement import AlikeNodes, Arrangement, NodeRoom, Slots, stand_today
from clusters.savings.floors import ReplicaRules

Replica: TypeAlias = tuple[WorkloadName, str]


def count_after_loss(kind: AlikeNodes) -> dict[WorkloadName, int]:
    """Returns how many replicas serve today whichever node is lost, up to those that serve the peak."""
    found = stand_today(kind)
    least = {name: min(kind.rules[name].serving, found.count(name)) for name in found.replicas}
    for counts in _losses(kind, found):
        for name, count in counts.items():
            least[name] = min(least[name], count)
    return least


def keeps_serving(kind: AlikeNodes, found: Arrangement) -> bool:
    """Returns whether as many replicas stand as must, whichever node is lost."""
    return all(
        count >= kind.after_loss.get(name, 0) for counts in _losses(kind, found) for name, count in counts.items()
    )


def _losses(kind: AlikeNodes, found: Arrangement) -> Iterator[dict[WorkloadName, int]]:
    """Gives for each node the replicas of the workloads that stand there, once it is lost and they were restarted.

    All restart at once, the largest first: whatever stood there competes for the same room.
    """
    asks, standing = _ask(kind, found)
    room = NodeRoom(found.free, [node.name for node in kind.nodes if node.takes_pods and node.name in found.free])
    for lost, going in standing.items():
        rest = room.without(lost)
        counts = {name: found.count(name) for name, _ in going}
        beside = {
            name: found.on_node(name) + found.waiting.get(name, Counter())
            for name in counts
            if kind.rules[name].most_per_node is not None
        }
        for key in going:
            counts[key[0]] -= 1
            for node, slots in asks[key]:
                rest.give(node, slots)
                if key[0] in beside:
                    beside[key[0]][node] -= 1
        for name, replica in sorted(going, key=lambda key: (-sum(sum(slots.values()) for _, slots in asks[key]), key)):
            rules = kind.rules[name]
            if rules.serving and _restarts(rest, asks[name, replica], beside.get(name, Counter()), rules):
                counts[name] += 1
        yield counts


def _ask(
    kind: AlikeNodes, found: Arrangement
) -> tuple[dict[Replica, list[tuple[str, Slots]]], dict[str, list[Replica]]]:
    """Returns the pods of each replica, as nodes and slots, and the replicas that need each node."""
    asks: dict[Replica, list[tuple[str, Slots]]] = defaultdict(list)
    for pod in kind.pods:
        asks[pod.workload, pod.replica].append((pod.node, pod.slots))
    standing: dict[str, list[Replica]] = defaultdict(list)
    for name, replicas in found.replicas.items():
        for replica, nodes in replicas.items():
            if (name, replica) not in asks:  # it found another place, as one pod
                asks[name, replica].append((next(iter(nodes)), kind.sizes[name]))
            for node in nodes:
                standing[node].append((name, replica))
    return asks, standing


def _restarts(room: NodeRoom, pods: Sequence[tuple[str, Slots]], on_node: Counter[str], rules: ReplicaRules) -> bool:
    """Places all pods of a replica, or none; returns whether there was room."""
    placed: list[tuple[str, Slots]] = []
    for _, slots in pods:
        place = room.take(slots, on_node, rules)
        if place is None:
            for node, taken in placed:
                room.give(node, taken)
                on_node[node] -= 1
            return False
        placed.append((place, slots))
        on_node[place] += 1
    return True
