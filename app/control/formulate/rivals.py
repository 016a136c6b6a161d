"""Rivals for GPUs: who holds what a service that is short could run on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from agents.contract.assignments import AssignedInstance
from app.control.domain.mode import AUTO, read_modes
from app.control.domain.policy import policy_spec
from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import PRIORITIES, Spec, gpu_type_of, model_of, quantile_of, slo_latency_ms
from app.control.formulate.host_rooms import HostRoom, read_host_rooms
from app.control.formulate.own_runtimes import runtime_name
from app.control.formulate.tenants import GpuUsage, node_prices, terms_of
from app.control.formulate.tenants.demand import sum_use_of_assigned
from app.control.formulate.tenants.terms import TenantTerms
from app.control.jobs.room import OccupiedFleet, UnusedGpu, free_capacity, most_linked
from app.manifests.attainable import EXEC_MARGIN, list_admitted_variants, slo_condition
from app.manifests.uncertain import profile_at

NEARLY_SHARE = 0.95  # of a limit: with less left than the rest, hardly an instance fits below it


def find_rivals(fleet: OccupiedFleet, is_held: bool, short: Collection[str]) -> frozenset[str]:
    """Returns the services that hold GPUs on which some of these could run, those themselves included.

    GPUs are what a service is short of where it could meet its SLO, none that it could run on has room, and no person
    is waited for. What its tenant's limit or budget keeps small is short of money. None of a higher priority gives way.
    On a node that its rules leave out it neither has room nor rivals.
    """
    declared = fleet.declared
    assigned = [(node, line) for node, wanted in fleet.in_force.items() for line in wanted.instances if line.service]
    use = sum_use_of_assigned(assigned, node_prices(declared))
    limited = {
        tenant for tenant, found in terms_of(declared).items() if _is_at_limit(found, use.get(tenant, GpuUsage()))
    }
    modes = read_modes(declared, is_held)
    services = {item.full_name: item for item in declared if item.kind == "Service"}
    wanting = [
        services[name]
        for name in short
        if name in services and services[name].tenant not in limited and modes.find(name) == AUTO
    ]
    if not wanting:
        return frozenset()
    priorities = {name: _priority(item.spec) for name, item in services.items()}
    unused, nodes = free_capacity(fleet), read_host_rooms(fleet)
    found: set[str] = set()
    for service in wanting:
        allowed = _leave_out_spot(service, assigned, nodes)
        full = _find_full_nodes(declared, service.spec, unused, allowed)
        most = _priority(service.spec)
        found |= {line.owner for node, line in assigned if node in full and priorities.get(line.owner, 0) <= most}
    return frozenset(found)


def _leave_out_spot(
    service: DeclaredObject, assigned: Sequence[tuple[str, AssignedInstance]], nodes: Mapping[str, HostRoom]
) -> Mapping[str, HostRoom]:
    """Returns the nodes without spot nodes, where these carry as much of the service as its maxSpotShare lets them."""
    share = (service.spec.get("availability") or {}).get("maxSpotShare", 1.0)
    own = [(node, line.rate_per_second) for node, line in assigned if line.owner == service.full_name]
    on_spot = sum(rate for node, rate in own if node in nodes and nodes[node].is_spot)
    if share >= 1 or on_spot < NEARLY_SHARE * share * sum(rate for _, rate in own):
        return nodes
    return {name: node for name, node in nodes.items() if not node.is_spot}


def _priority(service: Spec) -> float:
    return float(service.get("priority", PRIORITIES["Service"]))


def _find_full_nodes(
    declared: Sequence[DeclaredObject],
    service: Spec,
    unused: Mapping[str, Sequence[UnusedGpu]],
    allowed: Mapping[str, HostRoom],
) -> set[str]:
    """Returns the nodes on which the service could meet its SLO; none if any of them has room for it."""
    name, policy = model_of(service), policy_spec(declared)
    model = next((item.spec for item in declared if item.kind == "Model" and item.name == name), None)
    profiles = [item.spec for item in declared if item.kind == "Profile" and model_of(item.spec) == name]
    if model is None or slo_condition(service, model, profiles, policy).status != "True":
        return set()
    variants, types = list_admitted_variants(service, model), service.get("gpuTypes")
    runtimes = {variant["name"]: runtime_name(name, variant) for variant in model["variants"]}
    able = [
        profile_at(profile, quantile_of(policy))
        for profile in profiles
        if profile["variant"] in variants and (types is None or gpu_type_of(profile) in types)
    ]
    latency_ms = slo_latency_ms(service) / (1 + policy.get("execMargin", EXEC_MARGIN))
    is_alone = service.get("isolation") == "dedicated"
    found: set[str] = set()
    for profile in able:
        gpu_type, runtime = gpu_type_of(profile), runtimes[profile["variant"]]
        may = {name for name, node in allowed.items() if node.gpu_type == gpu_type and node.offers(runtime)}
        gpus = [gpu for gpu in unused.get(gpu_type, ()) if gpu.node in may and allowed[gpu.node].holds(profile)]
        if _fits(profile, latency_ms, is_alone, gpus):
            return set()
        found |= may
    return found


def _fits(profile: Spec, latency_ms: float, is_alone: bool, gpus: Sequence[UnusedGpu]) -> bool:
    """Returns whether one of these GPUs has room for an instance that answers in time when it is busy.

    A request then waits for the one before it: what only answers a lone request in time is too little to count.
    """
    empty = most_linked(gpus)
    if "iteration" in profile:
        return empty >= min(map(int, profile["iteration"]))
    if empty or is_alone:
        return bool(empty)
    needs = [
        (float(percent), profile["memoryGib"][batch])
        for batch, curve in profile["latencyMs"].items()
        for percent, exec_ms in curve.items()
        if 2 * exec_ms <= latency_ms
    ]
    model = model_of(profile)
    return any(
        percent <= gpu.sm_percent and memory_gib <= gpu.memory_gib
        for gpu in gpus
        if model not in gpu.full_models
        for percent, memory_gib in needs
    )


def _is_at_limit(terms: TenantTerms, use: GpuUsage) -> bool:
    """Returns whether a tenant may use hardly more, or perhaps no more: what its budget leaves is not looked at."""
    pairs = ((use.gpus, terms.limit.gpus), (use.price_per_hour, terms.limit.price_per_hour))
    is_full = any(limit is not None and used >= NEARLY_SHARE * limit for used, limit in pairs)
    return is_full or (terms.budget_per_month is not None and terms.over_budget != "alarm")
