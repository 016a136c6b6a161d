"""Services whose SLO lets hardly any load be accepted: served, with a warning that names the SLO at half the cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import inf

import numpy as np

from solvers.planning.explain.ground import Measurements, spot
from solvers.planning.explain.relaxations import CLOSE, rounded_up
from solvers.planning.explain.seats import shapes
from solvers.planning.problem import Problem, Service
from solvers.planning.promise import accepted_loads
from solvers.planning.tables import Tables

THIN = 0.1  # of the time of an instance: less than this accepted load everywhere is worth a word
LONGEST = 100.0  # times the SLO
IN_FULL = 20


def warnings(t: Tables, served: Collection[str]) -> tuple[str, ...]:
    """One sentence for each of them; the SLO of half the cost is computed for the first few."""
    found = [name for name, load in zip(t.services, most_load(t).tolist(), strict=True) if 0 < load < THIN]
    found = [name for name in found if name in served]
    return tuple(_sentence(t.problem, name, in_full=place < IN_FULL) for place, name in enumerate(found))


def most_load(t: Tables) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The largest load = rate x exec / batch that one instance of each service may carry anywhere, alone on its GPU."""
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


def half_cost_slo_ms(problem: Problem, service: Service) -> float | None:
    """The least SLO, to four digits, at which the service alone costs half; None where none does that."""
    memo: Measurements = {}
    half = cost(problem, service, memo) / 2

    def cheap(slo_ms: float) -> bool:
        return cost(problem, replace(service, slo_ms=slo_ms), memo) <= half

    low, high = service.slo_ms, service.slo_ms * LONGEST
    if not 0 < half < inf or not cheap(high):
        return None
    while high > low * CLOSE:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if cheap(middle) else (middle, high)
    return rounded_up(high)


def cost(problem: Problem, service: Service, memo: Measurements) -> float:
    """The least price an hour of the parts of GPUs that serve it alone: instances x price x max(SM, memory share)."""
    least = inf
    for node in {
        (node.gpu_type, node.templates, node.price_per_hour): node for node in problem.nodes.values()
    }.values():
        memory_gib = problem.gpu_types[node.gpu_type].memory_gib
        for shape in shapes(problem, spot(problem, (node.name, 0), [], []), service, memo):
            share = max(shape.sm_percent / 100, shape.profile.memory_gib[shape.batch] / memory_gib)
            instances = max(float(service.min_instances), service.rate_per_second / shape.cap)
            least = min(least, instances * node.price_per_hour * (1.0 if service.is_dedicated else share))
    return least


def _sentence(problem: Problem, name: str, in_full: bool) -> str:
    service = problem.services[name]
    said = f"{name}: under its SLO of {service.slo_ms:.6g} ms no instance may be loaded to {THIN:g} of its time"
    if not in_full:
        return said
    slo_ms = half_cost_slo_ms(problem, service)
    if slo_ms is None:
        return f"{said}; no longer SLO halves its cost"
    return f"{said}; at {slo_ms:.10g} ms its cost halves"
