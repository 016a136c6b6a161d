"""Joins the instances of parts to those of whole services."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from solvers.latency import latency_at
from solvers.planning.fleet.grids import Floats
from solvers.planning.parts.division import Division, Part
from solvers.planning.parts.groups import SPOT
from solvers.planning.parts.mixes import kept_shares
from solvers.planning.plan import NONE_UNSERVED_SHARE, ServicePlan, Unserved
from solvers.planning.problem import Instance, Problem, Service
from solvers.planning.replan.rates import even
from solvers.planning.search.promise import timeouts

ALL_SHARE = 1 - 1e-9  # of a rate: what sums of floats may lack


def joined(division: Division, services: ServicePlan, known: Sequence[Instance] = ()) -> ServicePlan:
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
    for name, parts in division.parts.items():
        service = division.whole.services[name]
        lines, rates = _carried(division, service, parts, by_service[name])
        found += _retimed(division.whole, service, _named(lines, name, ids), rates)
        rest = service.rate_per_second - float(rates.sum())
        if rest > NONE_UNSERVED_SHARE * service.rate_per_second:
            unserved.append(Unserved(name, rest))
    order = sorted(found, key=lambda line: line.place)
    return ServicePlan(order, [*unserved, *division.unserved()], services.origin)


def _carried(
    division: Division, service: Service, parts: Sequence[Part], lines: Sequence[Instance]
) -> tuple[list[Instance], Floats]:
    """Returns the instances and their rates: as much as the rules allow, in proportion to those that were planned."""
    nodes, group_of = division.whole.nodes, {part.name: part.group for part in parts}
    planned = np.array([line.rate_per_second for line in lines], dtype=np.float64)
    groups: dict[int, float] = defaultdict(float)
    for line in lines:
        groups[group_of[line.service]] += line.rate_per_second
    is_spot = np.array([nodes[line.node].purchase == SPOT for line in lines], dtype=np.bool_)
    firm, spot = float(planned[~is_spot].sum()), float(planned[is_spot].sum())
    share = service.availability.max_spot_share
    served = min(service.rate_per_second, firm + (spot if share >= 1 else min(spot, firm * share / (1 - share))))
    if service.availability.survive_nodes:
        able: dict[int, float] = defaultdict(float)  # of each group, when another is lost
        kept = {part.name: part.kept for part in parts}
        for line in lines:
            able[group_of[line.service]] += line.rate_per_second / kept[line.service]
        served = min(served, sum(able.values()) - max(able.values(), default=0.0))
    if service.availability.spread != "gpu" and len(groups) < service.min_instances:
        served = 0.0
    if served >= service.rate_per_second * ALL_SHARE:
        served = service.rate_per_second
    if served <= 0 or len(lines) < service.min_instances:
        return [], np.zeros(0)
    on_spot = min(spot * served / (firm + spot), share * served)
    factor = np.where(is_spot, on_spot / max(spot, 1e-300), (served - on_spot) / max(firm, 1e-300))
    rates = planned * factor
    if service.name in division.mixed:
        rates = rates * kept_shares(division.whole, service, lines, rates)
        lines = [line for line, rate in zip(lines, rates.tolist(), strict=True) if rate > 0]
        rates = rates[rates > 0]
    keys = [_apart(division.whole, service, line) for line in lines]
    if service.min_instances > 1 and not _leads(rates, keys, service.min_instances):
        rates = _led(np.maximum(planned, rates), keys, served, service.min_instances)
    return list(lines), rates


def _apart(problem: Problem, service: Service, line: Instance) -> object:
    match service.availability.spread:
        case "gpu":
            return line.place
        case "node":
            return line.node
        case "region":
            return problem.nodes[line.node].region


def _leads(rates: Floats, keys: Sequence[object], least: int) -> bool:
    """Returns whether the largest are apart and each carries half an even share."""
    order = np.argsort(-rates, kind="stable")
    leaders = order[:least]
    apart = len({keys[i] for i in leaders}) == len(leaders) == least
    return apart and bool(rates[leaders[-1]] >= rates.sum() / len(rates) / 2)


def _led(caps: Floats, keys: Sequence[object], total: float, least: int) -> Floats:
    """Spreads a rate evenly so that the largest instance of each of `least` keys is among the largest of all."""
    order = [int(i) for i in np.argsort(-caps, kind="stable")]
    first = {keys[i]: i for i in reversed(order)}
    leaders = sorted(first.values(), key=order.index)[:least]
    if len(leaders) < least:
        return even(caps, total, least)
    lowered = np.minimum(caps, caps[leaders[-1]])
    lowered[leaders] = caps[leaders]
    return even(lowered, min(total, float(lowered.sum())), least)


def _named(lines: Sequence[Instance], service: str, ids: set[str]) -> list[Instance]:
    """Returns the instances under the whole service's name, and those that are new with an id of their own."""
    numbers, found = count(1), []
    for line in lines:
        name = line.id
        if "#" in name:
            name = next(f"{service}/{n}" for n in numbers if f"{service}/{n}" not in ids)
            ids.add(name)
        found.append(replace(line, id=name, service=service))
    return found


def _retimed(problem: Problem, service: Service, lines: Sequence[Instance], rates: Floats) -> list[Instance]:
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
