"""Divides the nodes into zones: a service with a part in each of two zones has them on different nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from solvers.planning.problem import Instance, Node, Problem

PASSES = 4  # over the nodes, while a move to another zone lowers the overlap


def zones(
    problem: Problem, count: int, usable: Mapping[str, Sequence[str]], running: Sequence[Instance]
) -> dict[str, int]:
    """Returns the zone of each node.

    `usable` lists the nodes that may run each service that is to be divided. What runs already should be in different
    zones as it is: a node takes the zone in which its instances overlap least with those placed before. Otherwise each
    kind of node is spread evenly, and every service should find nodes in as many zones as there are.
    """
    draft = _ZoneDraft(count, _rates(running, usable), defaultdict(list))
    for service, names in usable.items():
        for name in names:
            draft.members[name].append(service)
    nodes = sorted(problem.nodes.values(), key=lambda node: (_kind(node), -node.gpu_count, node.name))
    for node in _order_by_ties(nodes, draft.rates):
        draft.put(node, draft.best(node), 1)
    for _ in range(PASSES if draft.rates else 0):
        moved = [draft.moves(node) for node in nodes]
        if not any(moved):
            break
    return draft.zone


@dataclass
class _ZoneDraft:
    """The zones so far."""

    count: int
    rates: Mapping[str, Mapping[str, float]]  # by node: the part of each service's rate that runs there
    members: dict[str, list[str]]  # by node: the services that may run there
    zone: dict[str, int] = field(default_factory=dict)
    load: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))  # of a service in a zone
    held: dict[tuple[object, int], int] = field(default_factory=lambda: defaultdict(int))  # GPUs of a kind, and of all
    covered: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))  # nodes for a service

    def put(self, node: Node, at: int, sign: int) -> None:
        """Adds a node to a zone (1) or takes it out (-1)."""
        self.zone[node.name] = at
        for service, rate in self.rates.get(node.name, {}).items():
            self.load[service, at] += sign * rate
        for key in (_kind(node), None):
            self.held[key, at] += sign * node.gpu_count
        for service in self.members[node.name]:
            self.covered[service, at] += sign

    def best(self, node: Node) -> int:
        return min(range(self.count), key=lambda at: self._rank(node, at))

    def moves(self, node: Node) -> bool:
        """Moves a node to another zone if it overlaps less there."""
        old = self.zone[node.name]
        self.put(node, old, -1)
        new = self.best(node)
        if self._rank(node, new)[0] >= self._rank(node, old)[0]:
            new = old
        self.put(node, new, 1)
        return new != old

    def _rank(self, node: Node, at: int) -> tuple[float, int, int, int, int]:
        overlap = sum(self.load[service, at] * rate for service, rate in self.rates.get(node.name, {}).items())
        fresh = sum(1 for service in self.members[node.name] if not self.covered[service, at])
        return round(overlap, 9), -fresh, self.held[_kind(node), at], self.held[None, at], at


def _kind(node: Node) -> tuple[str, float, str, str, tuple[float, ...]]:
    return node.gpu_type, node.price_per_hour, node.purchase, node.region, node.caps_w


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


def _order_by_ties(nodes: Sequence[Node], rates: Mapping[str, Mapping[str, float]]) -> list[Node]:
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
