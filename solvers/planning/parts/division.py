"""A problem with its services divided into parts, which the planner places like services."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from solvers.planning.plan import Plan, Unserved, list_unserved
from solvers.planning.problem import Instance, Problem

FITS_FACTOR = 1.2  # of its rate, that a part may hold already


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a service, which the planner places like a service."""

    name: str
    group: int  # parts of one group may fail together
    share: float  # of the service's rate
    kept: float  # of what it could carry when a node is lost: it uses so much
    cells: frozenset[str]  # the groups of nodes that may run it
    variants: tuple[str, ...] | None = None  # that it runs; None: all of the service


@dataclass(frozen=True)
class Division:
    """A problem with its services divided."""

    whole: Problem
    problem: Problem
    parts: Mapping[str, tuple[Part, ...]]  # by service
    impossible: Mapping[str, str]  # services that no nodes can run by their rules, and why

    def split_instances(self, instances: Iterable[Instance]) -> list[Instance]:
        """Returns these instances as those of parts, without those that run where no part may."""
        found, filled = [], dict.fromkeys((part.name for parts in self.parts.values() for part in parts), 0.0)
        for line in instances:
            parts = self.parts.get(line.service)
            if parts is None:
                if line.service not in self.impossible:
                    found.append(line)
                continue
            cell = self.problem.nodes[line.node].cell
            able = [
                part for part in parts
                if cell in part.cells and (part.variants is None or line.variant in part.variants)
            ]  # fmt: skip
            if not able:
                continue
            rate = line.rate_per_second
            whole = self.whole.services[line.service].rate_per_second
            least = min(able, key=lambda part: (len(part.cells), filled[part.name] >= part.share * whole * (1 - 1e-9)))
            part = next((p for p in able if filled[p.name] + rate <= p.share * whole * (1 + 1e-6)), least)
            filled[part.name] += rate
            found.append(replace(line, service=part.name, rate_per_second=rate))
        return found

    @property
    def beside_jobs(self) -> Problem:
        """Returns the whole problem in which services keep what they need for a loss, so that no job takes it."""
        changed = {}
        for name, parts in self.parts.items():
            used = min((self.problem.services[part.name].used_load for part in parts), key=lambda load: load.most)
            changed[name] = replace(self.whole.services[name], used_load=used)
        return replace(self.whole, services={**self.whole.services, **changed})

    @property
    def services_of_parts(self) -> dict[str, str]:
        """Returns the whole service of each part."""
        return {part.name: name for name, parts in self.parts.items() for part in parts}

    @cached_property
    def mixed(self) -> frozenset[str]:
        """Returns the services whose variants are mixed."""
        return frozenset(name for name, parts in self.parts.items() if parts[0].variants is not None)

    @property
    def is_part_of_rates(self) -> bool:
        """Returns whether parts of mixed services are to carry less than their rates."""
        return any(sum(part.share for part in self.parts[name]) < 1 - 1e-9 for name in self.mixed)

    @cached_property
    def misfit_share(self) -> float:
        """Returns the part of the rates that run where they could not stay: where no part may, or too much for one."""
        running = [line for line in _running(self.whole) if line.service in self.parts]
        total = sum(line.rate_per_second for line in running)
        held: dict[str, float] = defaultdict(float)
        for line in self.split_instances(running):
            held[line.service] += line.rate_per_second
        fits = sum(
            min(held[part.name], self.whole.services[name].rate_per_second * part.share * FITS_FACTOR)
            for name, parts in self.parts.items()
            for part in parts
        )
        return 1 - min(1.0, fits / total) if total > 0 else 0.0

    def split_plan(self, plan: Plan) -> Plan:
        """Returns a plan of the whole services as one of their parts."""
        instances = self.split_instances(plan.instances)
        kept = [entry for entry in plan.unserved if entry.service in self.problem.services]
        divided = {part.name for parts in self.parts.values() for part in parts}
        missing = [entry for entry in list_unserved(self.problem, instances) if entry.service in divided]
        return replace(plan, instances=tuple(instances), unserved=(*kept, *missing))

    def of_rates(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Returns rates of whole services as those of their parts."""
        found: dict[str, float] = {}
        for name, rate in rates.items():
            if name not in self.impossible:
                found |= {part.name: rate * part.share for part in self.parts.get(name, ())} or {name: rate}
        return found

    def unserved(self) -> list[Unserved]:
        """Returns the services that no nodes can run by their rules."""
        return [
            Unserved(name, self.whole.services[name].rate_per_second, reason)
            for name, reason in self.impossible.items()
        ]


def _running(problem: Problem) -> Sequence[Instance]:
    return problem.state.running if problem.state else ()
