"""Finds what keeps a service from running even if the whole fleet were empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor, inf

import numpy as np

from solvers.planning.explain.fleet import FleetCapacity, NodeKind
from solvers.planning.explain.fleet import fleet as fleet_of
from solvers.planning.explain.meter import Meter
from solvers.planning.fleet.grids import read_grid
from solvers.planning.fleet.offers import NO_GPU, read_offers
from solvers.planning.fleet.room_shapes import RoomShapes, find_caps, list_ways
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.problem import Node, Problem, Profile, Service
from solvers.planning.runtimes import missing_words

CLOSE_FACTOR = 1.002  # the search for an SLO ends within this factor


def impossible(fleet: FleetCapacity, service: Service, able: Sequence[NodeKind]) -> str | None:
    """Names the first obstacle that no plan can remove; `able` are the node kinds that may run the service."""
    able_gpus = sum(kind.gpus for kind in able)
    if able_gpus >= max(service.min_instances, 1):
        return None
    if not service.variants:
        return f"its variants and minAccuracy admit no variant of model {service.model}"
    if not fleet.kinds:
        return NO_GPU
    among = sorted(_allowed(fleet, service))
    if not among:
        return f"the fleet has no GPU of its gpuTypes: {', '.join(service.gpu_types or ())}"
    profiles = _profiles(fleet.problem, service, among)
    if not profiles:
        return _unmeasured(fleet, service)
    judged_ms, key = min((_fastest_ms(profile), profile.key) for profile in profiles)
    judged_ms *= 1 + fleet.problem.policy.exec_margin
    if judged_ms > service.slo_ms:
        return (
            f"its SLO of {service.slo_ms:.6g} ms is below the fastest exec, {judged_ms:.6g} ms with execMargin "
            f"({key[1]} on {key[2]})"
        )
    too_large = _too_large(fleet, profiles, among)
    if too_large or not able:
        return too_large or _unable(fleet, service, profiles, among, judged_ms)
    return (
        f"minInstances {service.min_instances} must run on different GPUs, and only {able_gpus} of the fleet may run it"
    )


def _too_large(fleet: FleetCapacity, profiles: list[Profile], among: list[str]) -> str | None:
    """Names the memory or the CPU cores of which no GPU or node of these types has enough for an instance."""
    types = ", ".join(among)
    if all(fleet.problem.gpu_types[p.gpu_type].memory_gib < min(p.memory_gib.values()) for p in profiles):
        least = min(min(profile.memory_gib.values()) for profile in profiles)
        return f"it needs at least {least:.6g} GiB of GPU memory, more than any GPU of {types} has"
    kinds = [kind for kind in fleet.kinds if kind.node.gpu_type in among]
    if all(_least(profiles, kind.node.gpu_type, "cpu_cores") > kind.most_cpu_cores for kind in kinds):
        return f"no usable node of {types} has the CPU cores that one instance takes"
    if all(_least(profiles, kind.node.gpu_type, "host_memory_gib") > kind.most_host_memory_gib for kind in kinds):
        return f"no usable node of {types} has the host memory that one instance takes"
    return None


def _unable(
    fleet: FleetCapacity, service: Service, profiles: list[Profile], among: list[str], judged_ms: float
) -> str:  # fmt: skip
    """Names the missing template or runtime or, with every template there, what the SLO leaves of an empty GPU."""
    offers, types = read_offers(fleet.problem), ", ".join(among)
    if not any(
        offers.is_offered(service.model, profile.variant, kind.node.templates)
        for kind in fleet.kinds
        for profile in profiles
        if profile.gpu_type == kind.node.gpu_type
    ):
        templates = {offers.templates[service.model, profile.variant] or "" for profile in profiles}
        return f"no usable node of {types} {missing_words(templates)}"
    if cap_words := _capped(fleet, service, among):
        return cap_words
    return (
        f"even an empty GPU of {types} cannot meet its SLO of {service.slo_ms:.6g} ms at percentile "
        f"{service.percentile:g} within memory and maxW; the fastest exec is {judged_ms:.6g} ms with execMargin"
    )


def _capped(fleet: FleetCapacity, service: Service, among: list[str]) -> str | None:
    """Says that caps of watts alone keep it off every GPU, and which cap would not; None if they do not."""
    problem = fleet.problem
    capped = [node for node in problem.nodes.values() if node.gpu_type in among and node.caps_w]
    most_w = ceil(max((problem.gpu_types[node.gpu_type].max_w for node in capped), default=0.0))
    if not capped or not _runs_under(problem, service, capped, most_w):
        return None
    least_w = floor(max(max(node.caps_w) for node in capped))  # that does not suffice
    while most_w - least_w > 1:
        middle_w = (least_w + most_w) // 2
        least_w, most_w = (least_w, middle_w) if _runs_under(problem, service, capped, middle_w) else (middle_w, most_w)
    return (
        f"capW of the nodes of {', '.join(among)} leaves every GPU too few watts for its SLO of {service.slo_ms:.6g} "
        f"ms at percentile {service.percentile:g}; a capW of {most_w} would be enough"
    )


def _runs_under(problem: Problem, service: Service, nodes: Sequence[Node], cap_w: float) -> bool:
    """Returns whether an instance carries some load on one of the nodes if each of their GPUs had this cap."""
    raised = {node.name: replace(node, caps_w=(cap_w,) * len(node.caps_w)) for node in nodes}
    return bool(able_kinds(fleet_of(FleetRooms(replace(problem, nodes=raised, state=None), (), ())), service))


def able_kinds(fleet: FleetCapacity, service: Service) -> list[NodeKind]:
    """Returns the node kinds on which an instance carries some load, alone on its GPU and node."""
    offers, view, policy = read_offers(fleet.problem), fleet.view, fleet.problem.policy

    def is_able(row: int, kind: NodeKind) -> bool:
        profiles = [
            profile
            for profile in offers.find_profiles(service, kind.node)
            if profile.demand.cpu_cores <= kind.most_cpu_cores
            and profile.demand.host_memory_gib <= kind.most_host_memory_gib
        ]
        return any(
            find_caps(view, np.array([row]), way, service, policy, least_sm)[0].any()
            for least_sm in (100, 1)  # most carry something with all SMs
            for way in list_ways(view, row, profiles)
        )

    return [kind for row, kind in enumerate(fleet.kinds) if is_able(row, kind)]


def alone(fleet: FleetCapacity, service: Service) -> RoomShapes:
    """Returns what an instance carries on an idle GPU of each kind."""
    return read_offers(fleet.problem).find_room_shapes(service, fleet.view, range(len(fleet.kinds)), Meter().spend)


def wanted_profile(fleet: FleetCapacity, service: Service) -> str | None:
    """Names the GPU types for which a service without a profile would need one, those with most empty GPUs first."""
    among = _allowed(fleet, service)
    if not service.variants or _profiles(fleet.problem, service, sorted(among)):
        return None
    offers, free = read_offers(fleet.problem), dict[str, int]()
    for kind in fleet.kinds:
        offered = any(offers.is_offered(service.model, name, kind.node.templates) for name in service.variants)
        if kind.node.gpu_type in among and offered:
            free[kind.node.gpu_type] = free.get(kind.node.gpu_type, 0) + kind.idle
    if not free:
        return None
    types = [f"{name} ({free[name]} empty)" for name in sorted(free, key=lambda name: (-free[name], name))]
    return f"a profile of {' or '.join(service.variants)} on {' or '.join(types)}"


def _unmeasured(fleet: FleetCapacity, service: Service) -> str:
    problem = fleet.problem
    of_model = [key for key in problem.profiles if key[0] == service.model]
    elsewhere = sorted({kind for _, variant, kind in of_model if variant in service.variants})
    if not of_model:
        words = f"model {service.model} has no profile at all"
    else:
        among = ", ".join(sorted(_allowed(fleet, service)))
        words = f"model {service.model} has no profile of {', '.join(service.variants)} on {among}"
        there = [name for name in elsewhere if name in fleet.gpu_types]
        gone = [name for name in elsewhere if name not in fleet.gpu_types]
        words += f"; it has one on {', '.join(there)}, which its gpuTypes exclude" if there else ""
        words += f"; it has one on {', '.join(gone)}, but the fleet has no such GPU" if gone and not there else ""
    wanted = wanted_profile(fleet, service)
    return f"{words}; {wanted} would help" if wanted else words


def _allowed(fleet: FleetCapacity, service: Service) -> frozenset[str]:
    return fleet.gpu_types if service.gpu_types is None else fleet.gpu_types & set(service.gpu_types)


def _profiles(problem: Problem, service: Service, among: list[str]) -> list[Profile]:
    return [
        problem.profiles[service.model, variant, kind]
        for variant in service.variants
        for kind in among
        if (service.model, variant, kind) in problem.profiles
    ]


def _fastest_ms(profile: Profile) -> float:
    return float(np.min(read_grid(profile).exec_ms))


def _least(profiles: list[Profile], gpu_type: str, field: str) -> float:
    return min((getattr(profile.demand, field) for profile in profiles if profile.gpu_type == gpu_type), default=inf)


def least_slo_ms(fleet: FleetCapacity, service: Service, longest: float) -> float | None:
    """Returns the shortest SLO at which the whole empty fleet carries the service's rate, or None."""
    many = np.array([kind.gpus for kind in fleet.kinds]) * fleet.problem.policy.same_model_per_gpu

    def carries(slo_ms: float) -> bool:
        at = alone(fleet, replace(service, slo_ms=slo_ms))
        most = np.zeros(len(many))
        np.maximum.at(most, at.gpu, at.cap.max(axis=1, initial=0.0))
        return float((most * many).sum()) >= service.rate_per_second

    profiles = _profiles(fleet.problem, service, sorted(_allowed(fleet, service)))
    fastest = min((_fastest_ms(profile) for profile in profiles), default=0.0)
    low, high = max(service.slo_ms, fastest * (1 + fleet.problem.policy.exec_margin)), longest
    if not carries(high):
        return None
    while high > low * CLOSE_FACTOR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if carries(middle) else (middle, high)
    return low
