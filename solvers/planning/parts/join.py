"""Joins the instances of parts to those of whole services."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from solvers.latency import latency_at
from solvers.planning.carried import ROUNDING_SHARE
from solvers.planning.fleet.grids import Floats, accepted_rate
from solvers.planning.judge.services import find_counted_place
from solvers.planning.judge.tolerances import SUM_SHARE, SURVIVING_UTILIZATION
from solvers.planning.parts.division import Division
from solvers.planning.parts.groups import SPOT
from solvers.planning.parts.mixes import kept_shares
from solvers.planning.plan import NONE_UNSERVED_SHARE, ServicePlan, Unserved
from solvers.planning.problem import Instance, Problem, Service
from solvers.planning.replan.rates import spread_evenly
from solvers.planning.search.promise import timeouts

ALL_SHARE = 1 - 1e-9  # of a rate: what sums of floats may lack
PASSES = 8  # in which the rates of instances on spot nodes fall


def join_parts(division: Division, services: ServicePlan, known: Sequence[Instance] = ()) -> ServicePlan:
    """Returns the plan of the whole services. Instances that are among `known` keep their ids."""
    owner = {part.name: name for name, parts in division.parts.items() for part in parts}
    by_service: dict[str, list[Instance]] = defaultdict(list)
    found: list[Instance] = []
    for line in services.instances:
        if line.service in owner:
            by_service[owner[line.service]].append(line)
        else:
            found.append(line)
    unserved = [entry for entry in services.unserved if entry.service not in owner]
    ids = {line.id for line in (*known, *found)}
    for name in division.parts:
        service = division.whole.services[name]
        lines = by_service[name]
        rates = _Copies.of(division.whole, service, lines).rates()
        if name in division.mixed:
            rates = rates * kept_shares(division.whole, service, lines, rates)
        lines = [line for line, rate in zip(lines, rates.tolist(), strict=True) if rate > 0]
        rates = rates[rates > 0]
        found += _set_rates(division.whole, service, _name_whole(lines, name, ids), rates)
        rest = service.rate_per_second - float(rates.sum())
        if rest > NONE_UNSERVED_SHARE * service.rate_per_second:
            unserved.append(Unserved(name, rest))
    order = sorted(found, key=lambda line: line.place)
    return ServicePlan(order, [*unserved, *division.unserved()], services.origin)


@dataclass(frozen=True)
class _Copies:
    """The instances of a service, with what the rules of its rates need of each."""

    service: Service
    lines: Sequence[Instance]
    planned: Floats  # rates
    most: Floats  # the rates that each carries within its SLO
    left: Floats  # what each carries when another node is lost
    is_spot: NDArray[np.bool_]
    keys: Sequence[object]  # what the service counts: GPUs, nodes or regions

    @classmethod
    def of(cls, problem: Problem, service: Service, lines: Sequence[Instance]) -> _Copies:
        planned = np.array([line.rate_per_second for line in lines], dtype=np.float64)
        most = np.array([accepted_rate(problem.policy, service, line.batch, line.exec_ms) for line in lines])
        busy = np.array([line.batch * 1000 / line.exec_ms if line.exec_ms else 0.0 for line in lines])
        is_spot = np.array([problem.nodes[line.node].purchase == SPOT for line in lines], dtype=np.bool_)
        keys = [find_counted_place(problem, service, line) for line in lines]
        return cls(
            service, lines, planned, np.maximum(planned, most * (1 - ROUNDING_SHARE)),
            busy * (SURVIVING_UTILIZATION * (1 - ROUNDING_SHARE)), is_spot, keys,
        )  # fmt: skip

    def rates(self) -> Floats:
        """Returns the rates that serve most by the rules, close to the planned ones; 0 if no rates keep them."""
        service, most = self.service, self.most
        if len(set(self.keys)) < service.min_instances or not len(self.lines):
            return np.zeros(len(self.lines))
        rates = self._fill(self.planned, most, self._find_served(most))
        if service.min_instances > 1 and not _leads(rates, self.keys, service.min_instances):
            most = _lower_largest(most, self.keys, service.min_instances)
            rates = self._fill(np.minimum(self.planned, most), most, self._find_served(most))
            if not _leads(rates, self.keys, service.min_instances):
                rates = self._even_out(most)
        return rates

    def _find_served(self, most: Floats) -> float:
        """Returns the most that may be served where each instance has at most this rate."""
        service, share = self.service, self.service.availability.max_spot_share
        firm, spot = float(most[~self.is_spot].sum()), float(most[self.is_spot].sum())
        total = firm + (spot if share >= 1 else min(spot, firm * share / (1 - share)))
        if service.availability.survive_nodes:
            by_node: dict[str, float] = defaultdict(float)
            for line, left in zip(self.lines, self.left.tolist(), strict=True):
                by_node[line.node] += left
            total = min(total, sum(by_node.values()) - max(by_node.values()))
        return service.rate_per_second if total >= service.rate_per_second * ALL_SHARE else total

    def _fill(self, rates: Floats, most: Floats, total: float) -> Floats:
        """Returns rates of this sum, in proportion to these or, where they are too low, to what is left of the most."""
        found, firm = np.zeros(len(rates)), ~self.is_spot
        planned, share = float(rates.sum()), self.service.availability.max_spot_share
        on_spot = float(rates[self.is_spot].sum()) * total / planned
        on_spot = min(max(on_spot, total - float(most[firm].sum())), share * total, float(most[self.is_spot].sum()))
        for where, wanted in ((self.is_spot, on_spot), (firm, total - on_spot)):
            before, limit = float(rates[where].sum()), float(most[where].sum())
            if wanted <= before:
                found[where] = rates[where] * (wanted / before if before > 0 else 0.0)
            else:
                found[where] = rates[where] + (most[where] - rates[where]) * min(
                    1.0, (wanted - before) / max(limit - before, 1e-300)
                )
        return found

    def _even_out(self, most: Floats) -> Floats:
        """Returns rates as even as these limits allow; those on spot nodes fall until they are within their share."""
        share, least = self.service.availability.max_spot_share, self.service.min_instances
        for _ in range(PASSES):
            most = _lower_largest(most, self.keys, least)
            rates = spread_evenly(most, self._find_served(most), least)
            spot, served = float(rates[self.is_spot].sum()), float(rates.sum())
            if spot <= share * served * (1 + ROUNDING_SHARE):
                return rates if _leads(rates, self.keys, least) else np.zeros(len(rates))
            firm = float(most[~self.is_spot].sum())
            most = np.where(self.is_spot, rates * (min(share * served, firm * share / (1 - share)) / spot), most)
        return np.zeros(len(most))


def _leads(rates: Floats, keys: Sequence[object], least: int) -> bool:
    """Returns whether the largest are apart and each carries half an even share."""
    order = np.argsort(-rates, kind="stable")
    edge = rates[order[least - 1]]
    over = [keys[i] for i in np.flatnonzero(rates > edge * (1 + SUM_SHARE)).tolist()]
    level = {keys[i] for i in np.flatnonzero(np.abs(rates - edge) <= edge * SUM_SHARE).tolist()}
    is_apart = len(set(over)) == len(over) and len(level.union(over)) >= least
    return is_apart and bool(edge >= rates.sum() / len(rates) / 2)


def _lower_largest(most: Floats, keys: Sequence[object], least: int) -> Floats:
    """Lowers the most so that the largest instance of each of `least` keys is among the largest of all."""
    order = [int(i) for i in np.argsort(-most, kind="stable")]
    first = {keys[i]: i for i in reversed(order)}
    leaders = sorted(first.values(), key=order.index)[:least]
    lowered: Floats = np.minimum(most, most[leaders[-1]])
    lowered[leaders] = most[leaders]
    return lowered


def _name_whole(lines: Sequence[Instance], service: str, ids: set[str]) -> list[Instance]:
    """Returns the instances under the whole service's name, and those that are new with an id of their own."""
    numbers, found = count(1), []
    for line in lines:
        name = line.id
        if "#" in name:
            name = next(f"{service}/{n}" for n in numbers if f"{service}/{n}" not in ids)
            ids.add(name)
        found.append(replace(line, id=name, service=service))
    return found


def _set_rates(problem: Problem, service: Service, lines: Sequence[Instance], rates: Floats) -> list[Instance]:
    """Returns the instances with these rates, their timeouts and predictions."""
    judged = [line.exec_ms * (1 + problem.policy.exec_margin) for line in lines]
    several = len(lines)
    waits = timeouts([service] * several, [line.batch for line in lines], judged, rates.tolist())
    found = []
    for line, rate, exec_ms, wait in zip(lines, rates.tolist(), judged, waits, strict=True):
        wait_ms = line.batch_timeout_ms if wait is None else wait
        if wait_ms and abs(wait_ms - line.batch_timeout_ms) <= 1e-9 * max(1.0, wait_ms):
            wait_ms = line.batch_timeout_ms
        reached = (line.batch, exec_ms, rate, service.percentile, min(wait_ms, exec_ms), service.variation)
        latency = latency_at(*reached) if exec_ms else 0.0
        found.append(replace(line, rate_per_second=rate, batch_timeout_ms=wait_ms, latency_ms=float(latency)))
    return found
