"""Fleets of two GPUs and up to three services, and their least cost by trying all that can run on each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product
from math import inf
from typing import Literal

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from solvers import latency
from solvers.planning.problem import Curve, Demand, GpuType, Node, Problem, Profile, Service, Variant, gpu_indexes

KINDS = {"big": (3.0, 1.0), "old": (1.0, 1.7)}  # price, how much slower
BATCHES = (1, 4)
LEAST, MOST = 47, 53  # SM% that profiles span: two residents fit, not any two
VARIANTS = {"v": 1.0, "w": 1.4}  # how much faster
CLOCKS_MHZ = (700.0, 1000.0)
NODES: list[dict[str, int]] = [{"old": 2}, {"old": 3}, {"big": 1, "old": 2}, {"big": 2, "old": 1}, {"big": 2, "old": 3}]


@st.composite
def fleets(draw: st.DrawFn, most_services: int = 3, pricing: Literal["gpu", "node"] = "gpu") -> Problem:
    """Few of all the features that a proof covers."""
    count = draw(st.integers(1, most_services))
    max_w = draw(st.sampled_from([130.0, 190.0, 400.0]))
    memory = draw(st.sampled_from([9.0, 13.0, 20.0]))
    kinds = {name: GpuType(name, memory, 20, max_w, CLOCKS_MHZ) for name in KINDS}
    services: dict[str, Service] = {}
    profiles: dict[tuple[str, str, str], Profile] = {}
    shared = draw(st.booleans())
    for number in range(count):
        model = f"m{0 if shared and number == 1 else number}"
        exec_ms = draw(st.floats(2, 8))
        for kind, variant in product(KINDS, VARIANTS):
            key = (model, variant, kind)
            profiles.setdefault(key, _profile(key, exec_ms * KINDS[kind][1] / VARIANTS[variant], number))
        service = Service(
            name=f"shop/s{number}",
            tenant="shop",
            model=model,
            variants=draw(st.sampled_from([("v",), ("w",), ("v", "w")])),
            slo_ms=exec_ms * draw(st.floats(2.0, 9.0)),
            percentile=draw(st.sampled_from([95.0, 98.0])),
            rate_per_second=draw(st.floats(20, 500)),
            is_dedicated=draw(st.integers(0, 4)) == 0,
            gpu_types=draw(st.sampled_from([None, ("big",)])),
            variation=draw(st.sampled_from([0.0, 0.0, 0.02, 0.4])),
        )
        services[service.name] = service
    gpus = draw(st.sampled_from([{"old": 2}, {"big": 1, "old": 1}, {"big": 2}] if pricing == "gpu" else NODES))
    return Problem(
        gpu_types=kinds,
        nodes={
            f"n-{kind}": Node(f"n-{kind}", kind, gpu_indexes(number), 64, 512, KINDS[kind][0], pricing=pricing)
            for kind, number in gpus.items()
        },
        models={f"m{number}": tuple(Variant(name, 1.0) for name in VARIANTS) for number in range(count)},
        profiles=profiles,
        services=services,
    )


def _profile(key: tuple[str, str, str], exec_ms: float, number: int) -> Profile:
    curves = {
        batch: tuple((sm, exec_ms * 50 / sm * (0.6 + 0.4 * batch)) for sm in (LEAST, 50, MOST)) for batch in BATCHES
    }
    demand = Demand(
        pressure=((40, 0.3 + 0.2 * number), (60, 0.9)),
        sensitivity=0.3,
        power_w=((LEAST, 60.0 + 5 * number), (MOST, 90.0)),
        clock_exponent=0.8,
        power_exponent=2.5,
    )
    return Profile(*key, curves, {1: 3.0 + number, 4: 7.0 + number}, demand)


def least_cost(problem: Problem) -> float:
    """Returns the least price of GPUs that serve all that can be served, with the rest's; infinite if none do."""
    nodes = list(problem.nodes.values())
    sets = {kind: _carried(problem, kind) for kind in {node.gpu_type for node in nodes}}
    can = np.max([carried.max(axis=0) for carried in sets.values()], axis=0) > 0
    rates = [problem.services[name].rate_per_second for name in sorted(problem.services)]
    lost = sum(problem.policy.unserved_price * max(rate, 1) for rate, some in zip(rates, can, strict=True) if not some)
    if not can.any():
        return lost
    sets = {kind: _undominated(carried[:, can]) for kind, carried in sets.items()}
    best = inf
    for number in product(*[_paid(node) for node in nodes]):
        used = [node for node, count in zip(nodes, number, strict=True) for _ in range(count)]
        price = sum(price_of_gpu(node) for node in used)
        if price >= best or not used:
            continue
        cover = sets[used[0].gpu_type]
        for node in used[1:]:
            both = (cover[:, None, :] + sets[node.gpu_type][None, :, :]).reshape(-1, cover.shape[1])
            cover = _undominated(np.unique(np.minimum(both, 1.0), axis=0))
        if (cover >= 1).all(axis=1).any():
            best = price
    return best + lost


def _undominated(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the rows that no other row exceeds everywhere."""
    kept: list[NDArray[np.float64]] = []
    for row in rows[np.argsort(-rows.sum(axis=1), kind="stable")]:
        if not any((row <= other).all() for other in kept):
            kept.append(row)
    return np.array(kept)


def price_of_gpu(node: Node) -> float:
    """Returns its price, or a millionth of it where something else pays for the node."""
    return node.price_per_hour / 1e6 if node.pricing == "paid" else node.price_per_hour


def _paid(node: Node) -> Sequence[int]:
    """Returns how many GPUs of a node may be paid."""
    return (0, node.gpu_count) if node.pricing == "node" else range(node.gpu_count + 1)


def _carried(problem: Problem, kind: str) -> NDArray[np.float64]:
    """Lists what every set of residents of a GPU carries, in parts of the services' rates."""
    gpu = problem.gpu_types[kind]
    services = [problem.services[name] for name in sorted(problem.services)]
    rows = [np.zeros(len(services))]
    for size in (1, 2):
        for who in combinations(range(len(services)), size):
            of = [services[k] for k in who]
            if any(service.gpu_types is not None and kind not in service.gpu_types for service in of):
                continue
            if size == 2 and (any(s.is_dedicated for s in of) or of[0].model == of[1].model):
                continue
            for shapes in product(*[_shapes(problem, service, kind) for service in of]):
                if sum(sm for _, sm, _ in shapes) > 100:
                    continue
                if sum(profile.memory_gib[batch] for profile, _, batch in shapes) > gpu.memory_gib:
                    continue
                for clock in CLOCKS_MHZ:
                    slow = CLOCKS_MHZ[-1] / clock
                    watts = sum(_at(p.demand.power_w, sm) * slow**-p.demand.power_exponent for p, sm, _ in shapes)
                    if gpu.idle_w + watts > gpu.max_w:
                        continue
                    total = sum(_at(p.demand.whole_pressure, sm) for p, sm, _ in shapes)
                    row = np.zeros(len(services))
                    for k, service, (profile, sm, batch) in zip(who, of, shapes, strict=True):
                        beside = total - _at(profile.demand.whole_pressure, sm)
                        exec_ms = _at(profile.latency_ms[batch], sm) * (1 + profile.demand.most_sensitivity * beside)
                        exec_ms *= slow**profile.demand.clock_exponent
                        row[k] = _rate(batch, exec_ms, service) / service.rate_per_second
                    rows.append(np.minimum(row, 1.0))
    return np.unique(np.array(rows), axis=0)


def _shapes(problem: Problem, service: Service, kind: str) -> list[tuple[Profile, int, int]]:
    of = [problem.profiles[service.model, variant, kind] for variant in service.variants]
    return list(product(of, range(LEAST, MOST + 1), BATCHES))


@cache
def _rate(batch: int, exec_ms: float, service: Service) -> float:
    """With the policy's margin of 5 % and utilization of 80 %."""
    most, _ = latency.max_rate(batch, exec_ms * 1.05, service.slo_ms, service.percentile, service.variation)
    return min(most, 800.0 * batch / exec_ms)


def _at(curve: Curve, sm: int) -> float:
    return float(np.interp(sm, [point for point, _ in curve], [value for _, value in curve]))
