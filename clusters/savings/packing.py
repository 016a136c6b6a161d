"""Which nodes of one kind come free: replicas that are not needed go, and the others are packed again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from clusters.estate import GpuPod, WorkloadName
from clusters.savings.arrangement import AlikeNodes, Arrangement, NodeRoom, PackedNode, Slots
from clusters.savings.floors import ReplicaRules
from clusters.savings.node_loss import count_after_loss, keeps_serving

# Limits of the work, so that many pods take no longer: for an order of nodes, and to place all pods once.
PODS_PLACED, LEAST_TRIES, PLACES_TRIED = 40_000, 16, 200_000


def arrange(kind: AlikeNodes, gone: frozenset[str]) -> Arrangement | None:
    """Returns how the kind's pods stand without these nodes; None if no way was found by which every rule holds."""
    found = _arrange(kind, gone, afresh=False)
    if found is None and len(kind.pods) * len(kind.nodes) <= PLACES_TRIED:
        found = _arrange(kind, gone, afresh=True)
    return found


def _arrange(kind: AlikeNodes, gone: frozenset[str], *, afresh: bool) -> Arrangement | None:
    """Lets replicas stay where they are, or places `afresh` all that may move."""
    found = Arrangement(
        {node.name: Counter(node.slots) for node in kind.nodes if node.name not in gone}, defaultdict(dict)
    )
    taken: dict[WorkloadName, list[str]] = defaultdict(list)
    held: dict[tuple[WorkloadName, str], list[GpuPod]] = defaultdict(list)
    for pod in kind.pods:
        held[pod.workload, pod.replica].append(pod)
    for name in {name for name, _ in held}:
        found.replicas[name] = {}
    order = sorted(held, key=lambda key: (key[0], read_index(key[1]), key[1]))
    for name, replica in order:
        if (afresh and kind.rules[name].is_movable) or any(pod.node in gone for pod in held[name, replica]):
            taken[name].append(replica)
            continue
        found.replicas[name][replica] = frozenset(pod.node for pod in held[name, replica])
        for pod in held[name, replica]:
            found.free[pod.node].subtract(pod.slots)
    for name in sorted(found.replicas):
        if not _leave(found, kind.rules[name], taken[name], held):
            return None
    room = NodeRoom(found.free, [node.name for node in kind.nodes if node.takes_pods and node.name not in gone])
    by_size = sorted(found.replicas, key=lambda name: (-max(kind.sizes.get(name, {}).values(), default=0), name))
    for pod in sorted(kind.waiting, key=lambda pod: (-sum(pod.slots.values()), pod.namespace, pod.name)):
        taken_already = found.waiting.setdefault(pod.workload, Counter())
        on_node = found.on_node(pod.workload) + taken_already
        place = room.take(pod.slots, on_node, kind.rules[pod.workload])
        if place is None:
            return None
        taken_already[place] += 1
    are_enough = all(_settle(found, kind.rules[name], kind.sizes.get(name), room) for name in by_size)
    return found if are_enough and keeps_serving(kind, found) else None


def read_index(replica: str) -> int:
    digits = replica[len(replica.rstrip("0123456789")) :]
    return int(digits) if digits else 0


def _leave(
    found: Arrangement,
    rules: ReplicaRules,
    taken: Sequence[str],
    held: Mapping[tuple[WorkloadName, str], list[GpuPod]],
) -> bool:
    """Lets replicas go that are not needed; returns False if one would have to move that cannot."""
    here = found.replicas[rules.name]
    if rules.is_in_order:  # the last one goes first, so those behind a replica of a node that goes must go as well
        first = min(map(read_index, taken), default=None)
        while here and (
            (first is not None and read_index(_last(here)) > first) or _may_leave(found, rules, _last(here))
        ):
            _remove(found, rules.name, _last(here), held)
        return True
    if taken and not rules.is_movable:
        return False
    while found.count(rules.name) > rules.least:
        on_node = found.on_node(rules.name)
        place = max(on_node, key=lambda node: (on_node[node], -sum(found.free[node].values()), node))
        leaving = next(replica for replica in sorted(here) if place in here[replica])
        if not _may_leave(found, rules, leaving):
            return True
        _remove(found, rules.name, leaving, held)
    return True


def _last(replicas: Iterable[str]) -> str:
    return max(replicas, key=read_index)


def _may_leave(found: Arrangement, rules: ReplicaRules, leaving: str) -> bool:
    here = found.replicas[rules.name]
    rest = {replica: nodes for replica, nodes in here.items() if replica != leaving}
    lost = max(Counter(node for nodes in rest.values() for node in nodes).values(), default=0)
    return len(rest) >= rules.least and len(rest) - lost >= rules.survivors


def _remove(
    found: Arrangement, name: WorkloadName, replica: str, held: Mapping[tuple[WorkloadName, str], list[GpuPod]]
) -> None:
    del found.replicas[name][replica]
    for pod in held[name, replica]:
        found.free[pod.node].update(pod.slots)


def _settle(found: Arrangement, rules: ReplicaRules, size: Slots | None, room: NodeRoom) -> bool:
    """Places replicas until enough stand, also with any one node lost."""
    while found.count(rules.name) < rules.least or found.survivors(rules.name) < rules.survivors:
        if not rules.is_movable or size is None or found.count(rules.name) >= rules.most:
            return False
        on_node = found.on_node(rules.name)
        place = room.take(size, on_node, rules)
        if place is None:
            return False
        found.replicas[rules.name][f"new-{found.added}"] = frozenset({place})
        found.added += 1
    return True


def free_nodes(kind: AlikeNodes) -> tuple[frozenset[str], Arrangement | None]:
    """Returns the nodes that can go, and how the rest stands; None: nothing may change here, not even the numbers."""
    kind = replace(kind, after_loss=count_after_loss(kind))
    best, arrangement = frozenset[str](), arrange(kind, frozenset())
    if arrangement is None:  # what waits finds no room even now, and would take whatever comes free
        return best, arrange(replace(kind, waiting=()), frozenset())
    held = Counter[str]()
    for pod in kind.pods:
        held[pod.node] += sum(pod.slots.values())
    orders = (
        lambda node: (held[node.name], -node.nano_per_hour, node.name),
        lambda node: (-node.nano_per_hour, held[node.name], node.name),
    )
    saved = 0
    prices = {node.name: node.nano_per_hour for node in kind.nodes}
    for order in orders:
        gone, without = _grow(kind, sorted((node for node in kind.nodes if node.may_go), key=order))
        worth = sum(prices[name] for name in gone)
        if worth > saved or (worth == saved and len(gone) > len(best)):
            best, arrangement, saved = gone, without, worth
    return best, arrangement


def _grow(kind: AlikeNodes, rest: Sequence[PackedNode]) -> tuple[frozenset[str], Arrangement | None]:
    """Lets nodes go in this order, by ones, twos, fours and so on while all goes well."""
    gone, without, step = frozenset[str](), arrange(kind, frozenset()), 1
    most, tries = bound_freed_nodes(kind), max(LEAST_TRIES, PODS_PLACED // max(1, len(kind.pods)))
    while rest and len(gone) < most and tries:
        more = [node.name for node in rest[: min(step, most - len(gone))]]
        tried, tries = arrange(kind, gone.union(more)), tries - 1
        if tried is not None:
            gone, without, rest, step = gone.union(more), tried, rest[len(more) :], 2 * step
        elif len(more) == 1:
            rest = rest[1:]
        step = step if tried is not None else max(1, step // 2)
    return gone, without


def bound_freed_nodes(kind: AlikeNodes) -> int:
    """Returns how many nodes can go at most: what must stay needs so many nodes' slots, however it is packed."""
    needed: Counter[str] = Counter()
    standing: dict[WorkloadName, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for pod in kind.pods:
        standing[pod.workload][pod.replica].update(pod.slots)
    for name, replicas in standing.items():
        for resource in {resource for slots in replicas.values() for resource in slots}:
            smallest = min(slots[resource] for slots in replicas.values())
            needed[resource] += smallest * min(kind.rules[name].least, len(replicas))
    for pod in kind.waiting:
        needed.update(pod.slots)
    fewest = 0
    for resource, count in needed.items():
        per_node = max((node.slots.get(resource, 0) for node in kind.nodes), default=0)
        fewest = max(fewest, ceil(count / per_node) if per_node else 0)
    going = sum(node.may_go for node in kind.nodes)
    return min(going, len(kind.nodes) - fewest)
