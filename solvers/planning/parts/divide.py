"""Divides services whose instances must not fail together.

A service that survives the loss of a node gets k parts of even rates in k zones of nodes. Each uses at most (k - 1) / k
of what it could carry at utilization 0.95: without any one zone, the others carry all of the service's rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from random import Random

from solvers.planning.availability import ALL_LOAD, ANYWHERE, UsedLoad
from solvers.planning.judge.tolerances import SURVIVING_UTILIZATION
from solvers.planning.parts.division import Division, Part
from solvers.planning.parts.estimate import Estimate, estimate
from solvers.planning.parts.groups import SPOT, Grouping, groups_by_region, least_groups, rate_of_part
from solvers.planning.parts.mixes import Mix, accurate_alone, find_promised, mixes_of
from solvers.planning.parts.zones import zones
from solvers.planning.problem import Instance, Node, Problem, RunningState, Service

MOST_ZONES = 4  # more save little capacity, and leave the planner few GPUs to choose from in each


def divider(problem: Problem, running: Sequence[Instance]) -> Divider | None:
    """Returns what divides the services so that what runs fits as it is; None where no service asks for it.

    Variants are mixed only where no other rule asks how instances share the rate.
    """
    bound = {name: s for name, s in sorted(problem.services.items()) if s.availability.binds(s.min_instances)}
    promises = find_promised(problem)
    if not bound and not promises:
        return None
    able = [name for name, service in promises.items() if name not in bound and service.min_instances == 1]
    mixes = mixes_of(problem, able, running)
    alone = accurate_alone(problem, [name for name in promises if name not in mixes])
    return Divider(alone, bound, estimate(alone), running, mixes=mixes, mixable=tuple(able), asked=problem)


@dataclass(frozen=True)
class Divider:
    """Divides the services of a problem, in one of several ways."""

    problem: Problem
    services: Mapping[str, Service]
    estimate: Estimate
    running: Sequence[Instance]
    keeps_slos: bool = True  # when a node is lost; else what is left carries the rate, and may answer late
    most_zones: int = MOST_ZONES
    zone_by_node: bool = False  # each node is a zone
    turn: int = 0  # another one puts parts into other zones
    mixes: Mapping[str, Mix] = field(default_factory=dict)  # else accurate variants alone
    mixable: tuple[str, ...] = ()  # services that may mix variants
    asked: Problem | None = None  # with all variants

    def mixed(self, mixes: Mapping[str, Mix]) -> Divider:
        """Returns the same with other mixes of variants."""
        assert self.asked is not None
        alone = accurate_alone(self.asked, [name for name in find_promised(self.asked) if name not in mixes])
        services = {name: alone.services[name] for name in self.services}
        return replace(self, problem=alone, services=services, estimate=estimate(alone), mixes=mixes)

    def division(self) -> Division:
        """Returns the problem with the services divided."""
        nodes = self.problem.nodes
        usable = {name: self._usable(name) for name in self.services}
        wanted = {name: self._zones_of(service, usable[name]) for name, service in self.services.items()}
        count = max(wanted.values(), default=0)
        if count > 1 and self.zone_by_node:
            count = len(nodes)
        running = [line for line in self.running if wanted.get(line.service, 0) > 1]
        zoned = {name: usable[name] for name in wanted if wanted[name] > 1}
        zone = zones(self.problem, count, zoned, running) if count > 1 else {}
        cell = {name: self._cell(node, zone) for name, node in nodes.items()}
        parts: dict[str, tuple[Part, ...]] = {}
        impossible: dict[str, str] = {}
        noise = Random(self.turn) if self.turn else None  # noqa: S311 (one of several ways to divide, no secret)
        grouping = Grouping(self.problem, self.estimate, zone, self.running, noise)
        for name in sorted(self.services, key=lambda name: (-self._size(name, usable[name]), name)):
            groups = grouping.groups(self.services[name], usable[name], self.most_zones)
            if isinstance(groups, str):
                impossible[name] = groups
            else:
                parts[name] = tuple(self._parts(self.services[name], groups, cell))
        everywhere = frozenset(cell.values())
        for name, mix in self.mixes.items():
            parts[name] = tuple(
                Part(f"{name}#{number}", 0, share, 1.0, everywhere, variants)
                for number, (variants, share) in enumerate(mix.parts, start=1)
            )
        services = {name: s for name, s in self.problem.services.items() if name not in parts | impossible}
        for name, of in parts.items():
            services |= {part.name: self._service(self.problem.services[name], part, of) for part in of}
        found = replace(
            self.problem,
            nodes={name: replace(node, cell=cell[name]) for name, node in nodes.items()},
            services=services,
            state=None,
        )
        division = Division(self.problem, found, parts, impossible)
        state = self.problem.state
        if state is None:
            return division
        lines = tuple(division.split_instances(state.running))
        return replace(division, problem=replace(found, state=RunningState(state.now, lines, state.jobs)))

    def _size(self, name: str, usable: Sequence[str]) -> float:
        """Returns about what the service costs where it may run: the largest choose their nodes first."""
        cost = self.estimate.cost(name, self.services[name].rate_per_second, [self.problem.nodes[n] for n in usable])
        return cost if cost < inf else 0.0

    def _usable(self, name: str) -> list[str]:
        """Returns the nodes that may run the service."""
        return [node for node in sorted(self.problem.nodes) if self.estimate.can_run(name, node)]

    def _zones_of(self, service: Service, usable: Sequence[str]) -> int:
        """Returns in how many zones the service should have a part: the number that costs least; 1 for no zones."""
        least = least_groups(service)
        if least < 2 or groups_by_region(service):
            return 1  # regions have nodes of their own
        nodes = [self.problem.nodes[name] for name in usable]

        def cost(parts: int) -> float:
            return parts * self.estimate.cost(service.name, rate_of_part(self.problem, service, parts), nodes)

        return min(range(least, max(least, min(self.most_zones, len(usable))) + 1), key=cost)

    def _cell(self, node: Node, zone: Mapping[str, int]) -> str:
        """Names the group of nodes that no rule of these services tells apart."""
        rules = [service.availability for service in self.services.values()]
        found = [f"zone {zone[node.name]}"] if zone else []
        if any(of.spread == "region" for of in rules):
            found.append(f"region {node.region}")
        if any(of.max_spot_share < 1 for of in rules):
            found.append(SPOT if node.purchase == SPOT else "no spot")
        return ", ".join(found)

    def _parts(
        self, service: Service, groups: Sequence[tuple[Sequence[Node], float]], cell: Mapping[str, str]
    ) -> Iterator[Part]:
        spot, number = service.availability.max_spot_share, 0
        for group, (nodes, share) in enumerate(groups):
            kept = share * (len(groups) - 1) if service.availability.survive_nodes else 1.0
            firm = frozenset(cell[node.name] for node in nodes)
            whole = rate_of_part(self.problem, service, len(groups))
            splits = 0 < spot < groups[0][1] * (1 - 1e-9)  # else whole groups run on spot nodes
            others = self._spot_beside(service, firm, cell) if splits else []
            pieces = [(share, firm)]
            if others and self._splits(service, whole, nodes, others):
                pieces = [(share * (1 - spot), firm), (share * spot, firm | {cell[node.name] for node in others})]
            for of, cells in pieces:
                number += 1
                yield Part(f"{service.name}#{number}", group, of, kept, cells)

    def _spot_beside(self, service: Service, firm: frozenset[str], cell: Mapping[str, str]) -> list[Node]:
        """Returns the spot nodes of these zones and regions that may run the service."""
        places = {of.removesuffix("no spot") for of in firm}
        return [
            node
            for name, node in sorted(self.problem.nodes.items())
            if node.purchase == SPOT
            and cell[name].removesuffix(SPOT) in places
            and self.estimate.can_run(service.name, name)
        ]

    def _splits(self, service: Service, rate: float, firm: Sequence[Node], others: Sequence[Node]) -> bool:
        """Returns whether a part on spot nodes saves anything; several required instances all stay on other nodes."""
        spot, cost = service.availability.max_spot_share, self.estimate.cost
        if service.min_instances > 1 and self.problem.policy.same_model_per_gpu > 1:
            return False
        pieces = cost(service.name, rate * (1 - spot), firm) + cost(service.name, rate * spot, [*firm, *others])
        return pieces < cost(service.name, rate, firm)

    def _service(self, service: Service, part: Part, parts: Sequence[Part]) -> Service:
        least, used = 1, ALL_LOAD
        if service.availability.spread == "gpu" and service.min_instances > 1:
            least = ceil(service.min_instances * part.share - 1e-9)
        lost = 1.0  # of the service's rate, for a request a second that the part lacks
        if service.availability.survive_nodes:
            groups = len({of.group for of in parts})
            lost = groups / (groups - 1)
            used = UsedLoad(part.kept if self.keeps_slos else 1.0, SURVIVING_UTILIZATION * part.kept)
        return replace(
            service,
            name=part.name,
            variants=service.variants if part.variants is None else part.variants,
            mean_accuracy=0.0,
            rate_per_second=service.rate_per_second * part.share,
            min_instances=least,
            priority=max(1, round(service.priority * lost)),
            availability=ANYWHERE,
            cells=part.cells,
            used_load=used,
        )
