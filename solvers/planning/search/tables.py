"""The problem as arrays: what every loop of the planner reads, built once, in an order that names alone decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from solvers import latency
from solvers.planning.problem import Curve, Node, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SM = 101  # SM% 0..100 as an index


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs that no rule tells apart: same type, price, templates, way of paying."""

    gpu_type: str
    price_per_hour: float
    is_paid_anyway: bool
    site: int
    gpus: tuple[tuple[str, int], ...]  # (node, index), by name


@dataclass(frozen=True)
class Tables:
    """Services, profiles, offers and pools by number.

    A site is a GPU type with the templates its nodes offer. An offer is one variant of one service on one site; the
    offers of a site stand together, those of one model together within it.
    """

    problem: Problem
    # services, by name
    services: tuple[str, ...]
    rate: Floats
    slo_ms: Floats
    percentile_row: Ints  # row of `loads`
    unserved_price: Floats  # per request a second
    min_instances: Ints
    is_dedicated: NDArray[np.bool_]
    model: Ints
    tenant: Ints
    # what the latency package accepts: percentile x batch x bin of SLO / exec -> load
    loads: Floats
    batches: Ints
    # profiles
    profiles: tuple[tuple[str, str, str], ...]
    exec_ms: Floats  # [profile, batch, SM%], infinite where not profiled
    memory_gib: Floats  # [profile, batch], infinite where not profiled
    pressure: Floats  # [profile, SM%]
    power_w: Floats  # [profile, SM%]
    sensitivity: Floats
    clock_exponent: Floats
    power_exponent: Floats
    cpu_cores: Floats
    host_memory_gib: Floats
    # offers
    offer_service: Ints
    offer_profile: Ints
    offer_variant: tuple[str, ...]
    site_start: Ints  # [sites + 1] into offers
    group_start: Ints  # into offers; groups of one site stand together
    site_group: Ints  # [sites + 1] into groups
    # sites and pools
    site_types: tuple[str, ...]
    pools: tuple[Pool, ...]

    @property
    def utilization(self) -> float:
        return self.problem.policy.utilization

    @property
    def margin(self) -> float:
        """What exec is multiplied by when an SLO is judged."""
        return 1 + self.problem.policy.exec_margin

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Service name -> number."""
        return {name: index for index, name in enumerate(self.services)}


def tables(problem: Problem) -> Tables:
    """Everything the loops need, from the problem alone."""
    services = tuple(sorted(problem.services))
    of = [problem.services[name] for name in services]
    percentiles = sorted({service.percentile for service in of})
    sites, pools = _pools(problem)
    models = {name: number for number, name in enumerate(sorted(problem.models))}
    tenants = {name: number for number, name in enumerate(sorted({service.tenant for service in of}))}

    templates = {(model, v.name): v.template for model, variants in problem.models.items() for v in variants}
    by_model: dict[str, list[int]] = {}
    for number, service in enumerate(of):
        by_model.setdefault(service.model, []).append(number)
    used: dict[tuple[str, str, str], int] = {}
    offers: list[tuple[int, int, str]] = []  # service, profile, variant
    site_start, site_group, group_start = [0], [0], []
    for gpu_type, offered in sites:
        for model in sorted(by_model):
            first = len(offers)
            for number in by_model[model]:
                service = of[number]
                if service.gpu_types is not None and gpu_type not in service.gpu_types:
                    continue
                for variant in service.variants:
                    key = (model, variant, gpu_type)
                    template = templates.get((model, variant))
                    if key in problem.profiles and (offered is None or template is None or template in offered):
                        offers.append((number, used.setdefault(key, len(used)), variant))
            if len(offers) > first:
                group_start.append(first)
        site_start.append(len(offers))
        site_group.append(len(group_start))
    group_start.append(len(offers))

    keys = tuple(used)
    found = [problem.profiles[key] for key in keys]
    batches = sorted({batch for profile in found for batch in profile.latency_ms}) or [1]
    limits = [latency.limits(percentile, batches).loads for percentile in percentiles]
    loads = np.ascontiguousarray(np.stack([rows[batches] for rows in limits])) if limits else np.zeros((0, 1, 1))
    exec_ms = np.full((len(keys), len(batches), SM), np.inf)
    memory = np.full((len(keys), len(batches)), np.inf)
    place = {batch: index for index, batch in enumerate(batches)}
    for number, profile in enumerate(found):
        for batch, curve in profile.latency_ms.items():
            exec_ms[number, place[batch]] = inside(curve)
            memory[number, place[batch]] = profile.memory_gib[batch]

    def by_profile(values: Iterable[float]) -> Floats:
        return np.array(list(values), dtype=np.float64)

    policy = problem.policy
    row_of = {percentile: row for row, percentile in enumerate(percentiles)}
    return Tables(
        problem=problem,
        services=services,
        rate=by_profile(service.rate_per_second for service in of),
        slo_ms=by_profile(service.slo_ms for service in of),
        percentile_row=np.array([row_of[service.percentile] for service in of], dtype=np.int64),
        unserved_price=by_profile(policy.unserved_price * service.priority / 100 for service in of),
        min_instances=np.array([service.min_instances for service in of], dtype=np.int64),
        is_dedicated=np.array([service.is_dedicated for service in of], dtype=np.bool_),
        model=np.array([models[service.model] for service in of], dtype=np.int64),
        tenant=np.array([tenants[service.tenant] for service in of], dtype=np.int64),
        loads=loads,
        batches=np.array(batches, dtype=np.int64),
        profiles=keys,
        exec_ms=exec_ms,
        memory_gib=memory,
        pressure=everywhere(profile.demand.pressure for profile in found),
        power_w=everywhere(profile.demand.power_w for profile in found),
        sensitivity=by_profile(profile.demand.sensitivity for profile in found),
        clock_exponent=by_profile(profile.demand.clock_exponent for profile in found),
        power_exponent=by_profile(profile.demand.power_exponent for profile in found),
        cpu_cores=by_profile(profile.demand.cpu_cores for profile in found),
        host_memory_gib=by_profile(profile.demand.host_memory_gib for profile in found),
        offer_service=np.array([offer[0] for offer in offers], dtype=np.int64),
        offer_profile=np.array([offer[1] for offer in offers], dtype=np.int64),
        offer_variant=tuple(offer[2] for offer in offers),
        site_start=np.array(site_start, dtype=np.int64),
        group_start=np.array(group_start, dtype=np.int64),
        site_group=np.array(site_group, dtype=np.int64),
        site_types=tuple(gpu_type for gpu_type, _ in sites),
        pools=pools,
    )


def _pools(problem: Problem) -> tuple[list[tuple[str, frozenset[str] | None]], tuple[Pool, ...]]:
    """Sites, and pools of GPUs; both in an order that the names of types and prices decide."""

    def site_of(node: Node) -> tuple[str, frozenset[str] | None]:
        return (node.gpu_type, node.templates)

    nodes = [problem.nodes[name] for name in sorted(problem.nodes)]
    sites = sorted(
        {site_of(node) for node in nodes}, key=lambda site: (site[0], sorted(site[1] or ()), site[1] is None)
    )
    number = {site: index for index, site in enumerate(sites)}
    gathered: dict[tuple[int, float, bool], list[tuple[str, int]]] = {}
    for node in nodes:
        alike = (number[site_of(node)], node.price_per_hour, node.is_paid_anyway)
        gathered.setdefault(alike, []).extend((node.name, index) for index in node.gpus)
    pools = tuple(
        Pool(sites[site][0], price, paid, site, tuple(gathered[site, price, paid]))
        for site, price, paid in sorted(gathered)
    )
    return sites, pools


def inside(curve: Curve) -> Floats:
    """Linear between the points of a curve, infinite beyond them."""
    points, values = zip(*curve, strict=True)
    between: Floats = np.interp(np.arange(SM), points, values, left=np.inf, right=np.inf)
    return between


def everywhere(curves: Iterable[Curve]) -> Floats:
    """Linear between the points of each curve, flat beyond them."""
    at = np.arange(SM)
    rows = [np.interp(at, [sm for sm, _ in curve], [value for _, value in curve]) for curve in curves]
    return np.array(rows) if rows else np.zeros((0, SM))
