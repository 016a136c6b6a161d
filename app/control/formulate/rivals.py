"""Rivals for GPUs: who holds what a service that is short could run on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.control.domain.desired import Desired
from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import gpu_type_of, model_of
from app.control.formulate.tenants import GpuUsage, node_prices, terms_of
from app.control.formulate.tenants.demand import sum_use_of_assigned
from app.control.formulate.tenants.terms import TenantTerms

NEARLY_SHARE = 0.95  # of a limit: with less left than the rest, hardly an instance fits below it


def find_rivals(declared: tuple[DeclaredObject, ...], in_force: Desired, short: Collection[str]) -> frozenset[str]:
    """Returns the services that hold GPUs on which some of these could run, those themselves included.

    What its tenant's limit or budget keeps small is short of money and not of GPUs, so it has none.
    """
    assigned = [(node, line) for node, wanted in in_force.items() for line in wanted.instances if line.service]
    use = sum_use_of_assigned(assigned, node_prices(declared))
    terms = terms_of(declared)
    limited = {tenant for tenant, found in terms.items() if _is_at_limit(found, use.get(tenant, GpuUsage()))}
    wanting = [
        item
        for item in declared
        if item.kind == "Service" and item.full_name in short and item.tenant not in limited
    ]  # fmt: skip
    types = _find_types(declared, wanting)
    nodes = {item.name for item in declared if item.kind == "Node" and gpu_type_of(item.spec) in types}
    return frozenset(line.owner for node, line in assigned if node in nodes)


def _find_types(declared: Sequence[DeclaredObject], services: Sequence[DeclaredObject]) -> set[str]:
    """Returns the GPU types on which any of these services could run."""
    measured: dict[str, set[str]] = {}
    for item in declared:
        if item.kind == "Profile":
            measured.setdefault(model_of(item.spec), set()).add(gpu_type_of(item.spec))
    found: set[str] = set()
    for service in services:
        known = measured.get(model_of(service.spec), set())
        admitted = service.spec.get("gpuTypes")
        found |= known if admitted is None else known & set(admitted)
    return found


def _is_at_limit(terms: TenantTerms, use: GpuUsage) -> bool:
    """Returns whether a tenant may use hardly more, or perhaps no more: what its budget leaves is not looked at."""
    pairs = ((use.gpus, terms.limit.gpus), (use.price_per_hour, terms.limit.price_per_hour))
    is_full = any(limit is not None and used >= NEARLY_SHARE * limit for used, limit in pairs)
    return is_full or (terms.budget_per_month is not None and terms.over_budget != "alarm")
