"""Warns of services whose SLO is so tight that instances carry hardly any load, and names the SLO at half the cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import inf

import numpy as np

from solvers.planning.explain.fleet import FleetCapacity, fleet
from solvers.planning.explain.impossible import CLOSE_FACTOR, alone
from solvers.planning.explain.rounding import rounded_up
from solvers.planning.fleet.grids import SM, accepted_loads
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.problem import Service
from solvers.planning.search.tables import Tables

THIN_LOAD_SHARE = 0.1  # of an instance's time: a service that may use less on every GPU gets a warning
LONGEST_SLO_FACTOR = 100.0  # of the SLO searched
FULL_SERVICES = 20


def warnings(t: Tables, served: Collection[str]) -> tuple[str, ...]:
    """Returns a sentence for each such service; the first few name the SLO at half the cost."""
    found = [name for name, load in zip(t.services, most_load(t).tolist(), strict=True) if 0 < load < THIN_LOAD_SHARE]
    found = [name for name in found if name in served]
    if not found:
        return ()
    kinds = fleet(FleetRooms(t.problem, (), ()))
    return tuple(_sentence(kinds, name, in_full=place < FULL_SERVICES) for place, name in enumerate(found))


def most_load(t: Tables) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Returns the largest load = rate x exec / batch of an instance of each service, alone on its best GPU."""
    most = np.zeros(len(t.services))
    if not len(t.offer_service):
        return most
    fastest = t.exec_ms.min(axis=2)[t.offer_profile] * t.margin  # [offer, batch]
    for row in range(len(t.loads)):
        of = np.flatnonzero(t.percentile_row[t.offer_service] == row)
        judged = fastest[of].ravel()
        slo = np.repeat(t.slo_ms[t.offer_service[of]], fastest.shape[1])
        batches = np.tile(np.arange(fastest.shape[1], dtype=np.int64), len(of))
        loads = np.zeros(len(judged))
        accepted_loads(np.ascontiguousarray(t.loads[row]), batches, slo / judged, loads)
        np.maximum.at(most, np.repeat(t.offer_service[of], fastest.shape[1]), loads)
    return most


def half_cost_slo_ms(fleet: FleetCapacity, service: Service) -> float | None:
    """Returns the shortest SLO, to four digits, at which the service alone costs half, or None."""
    half = cost(fleet, service) / 2

    def cheap(slo_ms: float) -> bool:
        return cost(fleet, replace(service, slo_ms=slo_ms)) <= half

    low, high = service.slo_ms, service.slo_ms * LONGEST_SLO_FACTOR
    if not 0 < half < inf or not cheap(high):
        return None
    while high > low * CLOSE_FACTOR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if cheap(middle) else (middle, high)
    return rounded_up(high)


def cost(fleet: FleetCapacity, service: Service) -> float:
    """Returns the least price an hour of serving it alone: instances x price x max(SM share, memory share)."""
    at = alone(fleet, service)
    least = inf
    for row, (gpu, number) in enumerate(zip(at.gpu.tolist(), at.way.tolist(), strict=True)):
        node = fleet.kinds[gpu].node
        memory_share = at.ways[number].at.memory_gib[at.by[row]] / fleet.problem.gpu_types[node.gpu_type].memory_gib
        share = np.ones(SM) if service.is_dedicated else np.maximum(np.arange(SM) / 100, memory_share)
        with np.errstate(divide="ignore"):
            instances = np.maximum(float(service.min_instances), service.rate_per_second / at.cap[row])
        least = min(least, float((instances * node.price_per_hour * share).min()))
    return least


def _sentence(kinds: FleetCapacity, name: str, in_full: bool) -> str:
    service = kinds.problem.services[name]
    warning = f"{name}: its SLO of {service.slo_ms:.6g} ms keeps each instance below {THIN_LOAD_SHARE:.0%} load"
    if not in_full:
        return warning
    slo_ms = half_cost_slo_ms(kinds, service)
    if slo_ms is None:
        return f"{warning}; no longer SLO would halve its cost"
    return f"{warning}; an SLO of {slo_ms:.10g} ms would halve its cost"
