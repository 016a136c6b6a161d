"""Divides the nodes into zones: a service with a part in each of two zones has them on different nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from solvers.planning.problem import Instance, Node, Problem

PASSES = 4  # over the nodes, while a move to another zone lowers the overlap


def zones(
    problem: Problem, count: int, usable: Mapping[str, Sequence[str]], running: Sequence[Instance], parts: int = 2
) -> dict[str, int]:
    """Returns the zone of each node.

    `usable` lists the nodes that may run each service that is to be divided. What runs already should be in different
    zones as it is: a node takes the zone in which its instances overlap least with those placed before. Otherwise each
    kind of node is spread evenly, and every service should find nodes in as many zones as it has parts.
    """
    rates = _rates(running, usable)
    members = defaultdict(list)
    for service, names in usable.items():
        for name in names:
            members[name].append(service)
    zone: dict[str, int] = {}
    load: dict[tuple[str, int], float] = defaultdict(float)  # of a service in a zone
    held: dict[tuple[object, int], int] = defaultdict(int)  # GPUs of a kind, and of all, in a zone
    covered: dict[tuple[str, int], int] = defaultdict(int)  # nodes that may run a service in a zone

    def put(node: Node, at: int, sign: int) -> None:
        for service, rate in rates.get(node.name, {}).items():
            load[service, at] += sign * rate
        for key in (_kind(node), None):
            held[key, at] += sign * node.gpu_count
        for service in members[node.name]:
            covered[service, at] += sign

    def rank(node: Node, at: int) -> tuple[float, int, int, int, int]:
        overlap = sum(_overlap(load[service, at], rate) for service, rate in rates.get(node.name, {}).items())
        fresh = sum(1 for service in members[node.name] if not covered[service, at])
        return round(overlap, 9), -fresh, held[_kind(node), at], held[None, at], at

    nodes = sorted(problem.nodes.values(), key=lambda node: (_kind(node), -node.gpu_count, node.name))
    for node in _by_ties(nodes, rates):
        zone[node.name] = min(range(count), key=lambda at, node=node: rank(node, at))  # type: ignore[misc]
        put(node, zone[node.name], 1)
    for _ in range(PASSES if rates else 0):
        moved = False
        for node in nodes:
            old = zone[node.name]
            put(node, old, -1)
            new = min(range(count), key=lambda at, node=node: rank(node, at))  # type: ignore[misc]
            if rank(node, new)[0] >= rank(node, old)[0]:
                new = old
            zone[node.name], moved = new, moved or new != old
            put(node, new, 1)
        if not moved:
            break
    return zone


def _kind(node: Node) -> tuple[str, float, str, str]:
    return node.gpu_type, node.price_per_hour, node.purchase, node.region


def _rates(running: Sequence[Instance], usable: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Returns by node the part of each service's rate that runs there."""
    total: dict[str, float] = defaultdict(float)
    for instance in running:
        total[instance.service] += instance.rate_per_second
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for instance in running:
        if instance.service in usable and total[instance.service] > 0:
            found[instance.node][instance.service] += instance.rate_per_second / total[instance.service]
    return found


def _overlap(load: float, rate: float) -> float:
    """Returns how badly a service's part on a node fits into a zone that has so much of it already."""
    return load * rate


def _by_ties(nodes: Sequence[Node], rates: Mapping[str, Mapping[str, float]]) -> list[Node]:
    """Orders nodes so that each shares services with those before it: their zones then leave it least choice."""
    left, ordered = dict.fromkeys(node.name for node in nodes), []
    by_name = {node.name: node for node in nodes}
    ties: dict[str, float] = defaultdict(float)
    on: dict[str, list[str]] = defaultdict(list)
    for name, services in rates.items():
        for service in services:
            on[service].append(name)
    while left:
        name = max(left, key=lambda name: ties[name])
        del left[name]
        ordered.append(by_name[name])
        for service, rate in rates.get(name, {}).items():
            for other in on[service]:
                if other in left:
                    ties[other] += rate * rates[other][service]
    return ordered
