"""Chooses the nodes of each group of a service's parts: zones or regions, which do not fail together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp, inf
from random import Random
from typing import TypeAlias

from solvers.planning.judge.tolerances import SURVIVING_UTILIZATION
from solvers.planning.parts.estimate import Estimate
from solvers.planning.problem import Instance, Node, Problem, Service

NOISE_SHARE = 0.5  # of the costs by which groups are chosen
SPOT = "spot"
Domain: TypeAlias = Hashable  # a zone or a region
Group: TypeAlias = list[Node]


def least_groups(service: Service) -> int:
    """Returns the fewest groups of nodes that a service needs."""
    rules = service.availability
    return max(1 if rules.spread == "gpu" else service.min_instances, 2 if rules.survive_nodes else 1)


def groups_by_region(service: Service) -> bool:
    """Returns whether the groups are regions."""
    return service.availability.spread == "region" and service.min_instances > 1


def rate_of_part(problem: Problem, service: Service, groups: int) -> float:
    """Returns the rate that an even part should be able to carry, by the policy's utilization."""
    if not service.availability.survive_nodes or groups < 2:
        return service.rate_per_second / groups
    usual = problem.policy.utilization / SURVIVING_UTILIZATION
    return service.rate_per_second * max(1 / groups, usual / (groups - 1))


@dataclass
class Grouping:
    """Chooses groups for one service after the other; nodes that were chosen often seem to cost more."""

    problem: Problem
    estimate: Estimate
    zone: Mapping[str, int]
    running: Sequence[Instance]
    noise: Random | None = None
    taken: dict[Domain, float] = field(default_factory=lambda: defaultdict(float))

    def groups(self, service: Service, usable: Sequence[str], most: int) -> list[tuple[Group, float]] | str:
        """Returns the nodes of each group and its share of the rate, or why there are too few groups.

        A group has spot nodes only if it may use them.
        """
        least = least_groups(service)
        domains = self._domains(service, usable, least)
        firm = {at: [node for node in nodes if node.purchase != SPOT] for at, nodes in domains.items()}
        runs = {line.node for line in self.running if line.service == service.name}
        best: list[tuple[Domain, Group, float]] = []
        best_shares: list[float] = []
        cheapest = inf
        for count in range(least, max(least, min(most, len(domains)) if least > 1 else 1) + 1):
            for shares in _shares(service, count):
                chosen = self._choose(service, shares, domains, firm, runs)
                cost = sum(crowded for _, _, crowded in chosen)
                if len(chosen) == count and (not best or cost < cheapest * (1 - 1e-9)):
                    best, best_shares, cheapest = chosen, shares, cost
        if not best:
            return self._too_few(service, least, domains, firm)
        for at, _, crowded in best:
            self.taken[at] += crowded if crowded < inf else 0.0
        return [(nodes, share) for (_, nodes, _), share in zip(best, best_shares, strict=True)]

    def _domains(self, service: Service, usable: Sequence[str], least: int) -> dict[Domain, Group]:
        found: dict[Domain, Group] = {}
        for name in usable:
            node = self.problem.nodes[name]
            at: Domain = 0 if least < 2 else node.region if groups_by_region(service) else self.zone.get(name, 0)
            found.setdefault(at, []).append(node)
        return found

    def _choose(
        self, service: Service, shares: Sequence[float], domains: Mapping[Domain, Group], firm: Mapping[Domain, Group],
        runs: set[str],
    ) -> list[tuple[Domain, Group, float]]:  # fmt: skip
        """Returns domains for groups of these shares; as many of the first as their shares allow may use spot nodes."""
        count, most = len(shares), service.availability.max_spot_share
        rate = rate_of_part(self.problem, service, count)
        free = count if most >= 1 else sum(1 for share in accumulate(shares) if share <= most * (1 + 1e-9))

        def ranked(groups: Mapping[Domain, Group]) -> list[tuple[bool, float, str, Domain]]:
            found = []
            for at, nodes in groups.items():
                if nodes:
                    crowded = self.estimate.cost(service.name, rate, nodes) * self._crowding(at, domains[at])
                    found.append((not any(node.name in runs for node in nodes), crowded, str(at), at))
            return sorted(found, key=lambda entry: entry[:3])

        plans = []
        for begins_free in (True, False):
            found: list[list[tuple[Domain, Group, float]]] = []
            for groups, wanted in ((domains, free), (firm, count - free))[:: 1 if begins_free else -1]:
                gone = {at for chosen in found for at, _, _ in chosen}
                left = [entry for entry in ranked(groups) if entry[3] not in gone]
                found.append([(at, groups[at], crowded) for _, crowded, _, at in left[:wanted]])
            plans.append([entry for chosen in found[:: 1 if begins_free else -1] for entry in chosen])
        return min(plans, key=lambda chosen: (-len(chosen), sum(crowded for _, _, crowded in chosen)))

    def _crowding(self, at: Domain, nodes: Group) -> float:
        worth = sum(node.gpu_count * node.price_per_hour for node in nodes)
        return (1 + self.taken[at] / worth) * (exp(NOISE_SHARE * self.noise.gauss(0, 1)) if self.noise else 1.0)

    def _too_few(
        self, service: Service, least: int, domains: Mapping[Domain, Group], firm: Mapping[Domain, Group]
    ) -> str:
        rules = service.availability
        if not domains:
            return "no node of the fleet may run it"
        if len(domains) >= least or (least == 1 and not any(firm.values())):
            return f"maxSpotShare {rules.max_spot_share:g}: too few nodes that are not spot may run it"
        if groups_by_region(service):
            return f"minInstances {service.min_instances} must run in different regions; {len(domains)} may run it"
        if rules.spread == "node" and service.min_instances > 1:
            return f"minInstances {service.min_instances} must run on different nodes; {len(domains)} may run it"
        return f"surviveNodes 1 needs two nodes that may run it; there is {len(domains)}"


def _shares(service: Service, count: int) -> Iterator[list[float]]:
    """Yields the shares of so many groups: even ones, and less for one that may then run on spot nodes."""
    yield [1 / count] * count
    spot = service.availability.max_spot_share
    if service.availability.survive_nodes and count > 1 and 0 < spot < 1 / count:
        yield [spot] + [(1 - spot) / (count - 1)] * (count - 1)
