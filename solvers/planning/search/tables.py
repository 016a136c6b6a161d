"""The problem as arrays that every loop of the planner reads; built once, in an order that names alone decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from solvers.planning.fleet.grids import SM, Floats, Ints, ProfileGrid, read_grid, read_loads
from solvers.planning.fleet.offers import Site, read_offers
from solvers.planning.judge.billing import gpu_price, is_billed_whole
from solvers.planning.machines import GpuType, cap_type
from solvers.planning.pressures import Pressures
from solvers.planning.problem import Node, Problem, ProfileKey, Service


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs that no rule distinguishes: same type, price, templates, cap of watts and way of paying.

    Where nodes are billed whole, a pool holds whole nodes: all GPUs of each, one node after the other. Such a node is
    planned as if each of its GPUs had the smallest of their caps.
    """

    gpu_type: str
    price_per_hour: float
    is_paid_anyway: bool
    site: int
    gpus: tuple[tuple[str, int], ...]  # (node, index), by name
    node_sizes: tuple[int, ...] = ()  # GPUs of each of its nodes, where these are billed whole


@dataclass(frozen=True)
class Tables:
    """Services, profiles, offers and pools by number.

    A site is a GPU type and a cap of watts, with the templates its nodes offer. An offer is one variant of one service
    on one site; the offers of a site are contiguous, and within it those of one model.
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
    survives: NDArray[np.bool_]  # the loss of any node
    model: Ints
    tenant: Ints
    # accepted loads of the latency package: percentile and variation x batch x bin of SLO / exec -> load
    loads: Floats
    batches: Ints
    # profiles
    profiles: tuple[ProfileKey, ...]
    exec_ms: Floats  # [profile, batch, SM%], infinite where not profiled
    memory_gib: Floats  # [profile, batch], infinite where not profiled
    pressure: Pressures  # [profile, SM%]
    power_w: Floats  # [profile, SM%]
    sensitivity: Pressures
    clock_exponent: Floats
    power_exponent: Floats
    cpu_cores: Floats
    host_memory_gib: Floats
    # offers
    offer_service: Ints
    offer_profile: Ints
    offer_variant: tuple[str, ...]
    site_start: Ints  # [sites + 1] into offers
    group_start: Ints  # into offers; groups of one site are contiguous
    site_group: Ints  # [sites + 1] into groups
    # sites and pools
    site_types: tuple[GpuType, ...]  # with the site's cap as maxW
    pools: tuple[Pool, ...]

    @property
    def utilization(self) -> float:
        return self.problem.policy.utilization

    @property
    def margin(self) -> float:
        """The factor on exec when an SLO is judged."""
        return 1 + self.problem.policy.exec_margin

    @cached_property
    def has_both(self) -> bool:
        """True if some residents press on bandwidth, and some feel it: then there are two pressures."""
        return bool((self.sensitivity.imag > 0).any() and (self.pressure.imag > 0).any())

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Service name -> number."""
        return {name: index for index, name in enumerate(self.services)}


@dataclass(frozen=True, slots=True)
class _Offers:
    """The offers of all sites, and where each site and each model within it begins."""

    listed: list[tuple[int, int, str]]  # service, profile, variant
    profiles: tuple[ProfileKey, ...]  # those that an offer uses
    site_start: list[int]
    site_group: list[int]
    group_start: list[int]


def tables(problem: Problem) -> Tables:
    """Builds everything that the loops need from the problem alone."""
    names = tuple(sorted(problem.services))
    services = [problem.services[name] for name in names]
    sites, pools = _pools(problem)
    offers = _offers(problem, services, sites)
    profiles = [problem.profiles[key] for key in offers.profiles]
    grids = [read_grid(profile) for profile in profiles]
    batches = sorted({batch for profile in profiles for batch in profile.latency_ms}) or [1]
    exec_ms, memory_gib = _measurements(grids, batches)
    by_row = {_row(service): service for service in services}
    row_of = {row: number for number, row in enumerate(sorted(by_row))}
    loads = [read_loads(by_row[row], problem.policy, _ints(batches)) for row in row_of]
    models = {name: number for number, name in enumerate(sorted(problem.models))}
    tenants = {name: number for number, name in enumerate(sorted({service.tenant for service in services}))}
    policy = problem.policy
    return Tables(
        problem=problem,
        services=names,
        rate=_floats(service.rate_per_second for service in services),
        slo_ms=_floats(service.slo_ms for service in services),
        percentile_row=_ints(row_of[_row(service)] for service in services),
        unserved_price=_floats(map(policy.price_unserved, services)),
        min_instances=_ints(service.min_instances for service in services),
        is_dedicated=np.array([service.is_dedicated for service in services], dtype=np.bool_),
        survives=np.array([service.availability.survive_nodes > 0 for service in services], dtype=np.bool_),
        model=_ints(models[service.model] for service in services),
        tenant=_ints(tenants[service.tenant] for service in services),
        loads=np.stack(loads) if loads else np.zeros((0, 1, 1)),
        batches=_ints(batches),
        profiles=offers.profiles,
        exec_ms=exec_ms,
        memory_gib=memory_gib,
        pressure=np.array([grid.pressure for grid in grids], np.complex128).reshape(-1, SM),
        power_w=np.array([grid.power_w for grid in grids]).reshape(-1, SM),
        sensitivity=np.array([profile.demand.sensitivity for profile in profiles], np.complex128),
        clock_exponent=_floats(profile.demand.clock_exponent for profile in profiles),
        power_exponent=_floats(profile.demand.power_exponent for profile in profiles),
        cpu_cores=_floats(profile.demand.cpu_cores for profile in profiles),
        host_memory_gib=_floats(profile.demand.host_memory_gib for profile in profiles),
        offer_service=_ints(service for service, _, _ in offers.listed),
        offer_profile=_ints(profile for _, profile, _ in offers.listed),
        offer_variant=tuple(variant for _, _, variant in offers.listed),
        site_start=_ints(offers.site_start),
        group_start=_ints(offers.group_start),
        site_group=_ints(offers.site_group),
        site_types=tuple(cap_type(problem.gpu_types[site.gpu_type], site.max_w) for site in sites),
        pools=pools,
    )


def _offers(problem: Problem, services: Sequence[Service], sites: Sequence[Site]) -> _Offers:
    """Lists the offers site by site, and within a site model by model."""
    find_profiles = read_offers(problem).find_profiles
    by_model: dict[str, list[int]] = {}
    for number, service in enumerate(services):
        by_model.setdefault(service.model, []).append(number)
    listed: list[tuple[int, int, str]] = []
    number_of: dict[ProfileKey, int] = {}
    site_start, site_group, group_start = [0], [0], []
    for site in sites:
        for model in sorted(by_model):
            first = len(listed)
            for number in by_model[model]:
                listed += [
                    (number, number_of.setdefault(profile.key, len(number_of)), profile.variant)
                    for profile in find_profiles(services[number], site)
                ]
            if len(listed) > first:
                group_start.append(first)
        site_start.append(len(listed))
        site_group.append(len(group_start))
    group_start.append(len(listed))
    return _Offers(listed, tuple(number_of), site_start, site_group, group_start)


def _measurements(grids: Sequence[ProfileGrid], batches: Sequence[int]) -> tuple[Floats, Floats]:
    """Returns exec and memory of each profile by batch, infinite where it was not profiled."""
    exec_ms = np.full((len(grids), len(batches), SM), np.inf)
    memory_gib = np.full((len(grids), len(batches)), np.inf)
    for number, grid in enumerate(grids):
        at = np.searchsorted(batches, grid.batches)
        exec_ms[number, at], memory_gib[number, at] = grid.exec_ms, grid.memory_gib
    return exec_ms, memory_gib


def _row(service: Service) -> tuple[float, float, float, float]:
    """Returns what the loads depend on that a service accepts."""
    return service.percentile, service.variation, service.used_load.share, service.used_load.most


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _pools(problem: Problem) -> tuple[list[Site], tuple[Pool, ...]]:
    """Returns the sites and the pools of GPUs, both in an order that the names of types and prices decide."""
    policy, nodes = problem.policy, [problem.nodes[name] for name in sorted(problem.nodes)]
    parts = [(node, part) for node in nodes for part in _group_by_cap(problem, node)]
    sites = sorted(
        {_site(node, cap_w) for node, (cap_w, _) in parts},
        key=lambda site: (site[0], sorted(site[1] or ()), site[1] is None, *site[2:]),
    )
    number = {site: index for index, site in enumerate(sites)}
    alike: dict[tuple[int, float, bool, bool], list[tuple[str, tuple[int, ...]]]] = {}
    for node, (cap_w, gpus) in parts:
        whole = is_billed_whole(node, policy)
        price = (node.price_per_hour if whole else gpu_price(node)) * policy.money_weight
        of_kind = (number[_site(node, cap_w)], price, node.is_paid_anyway, whole)
        alike.setdefault(of_kind, []).append((node.name, gpus))
    pools = []
    for site, price, paid, whole in sorted(alike):
        of = alike[site, price, paid, whole]
        places = tuple((name, index) for name, gpus in of for index in gpus)
        sizes = tuple(len(gpus) for _, gpus in of) if whole else ()
        pools.append(Pool(sites[site][0], price, paid, site, places, sizes))
    return sites, tuple(pools)


def _site(node: Node, cap_w: float) -> Site:
    return Site(node.gpu_type, node.templates, node.cell, cap_w)


def _group_by_cap(problem: Problem, node: Node) -> list[tuple[float, tuple[int, ...]]]:
    """Returns a node's GPUs by the watts that they may draw, in one part where it is billed whole."""
    parts = node.group_by_watts(problem.gpu_types[node.gpu_type])
    return [(parts[0][0], node.gpus)] if is_billed_whole(node, problem.policy) else parts
