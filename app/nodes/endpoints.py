"""Which copies serve which service, for gateways: from what nodes report and what they were told.

A copy is an endpoint from when its node wants it routed until its node says that it has gone. It is drained as soon
as its node drains it, or as nobody is told any more to run its instance while another copy of the service is up:
never the last one that serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from agents.contract import AssignedInstance, Assignment, EndpointCopy, ServiceEndpoints, owner_name
from app.nodes.detail import InstanceOwner, NodeDetail
from app.store.fleet.endpoints import GatewayLimit

UP = ("routing", "ready")
GOING = ("draining", "ending")  # and requests that it still answers
SMALLEST_WEIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class ServiceCopy:
    """A copy of a service on a node."""

    service: str  # tenant/name
    instance: str
    copy: EndpointCopy
    told: AssignedInstance | None  # None: nobody is told to run it any more

    @property
    def up(self) -> bool:
        return not self.copy.drained


def list_copies(node: str, detail: NodeDetail, assignment: Assignment | None) -> tuple[ServiceCopy, ...]:
    """The copies of services that a node has, as gateways should treat them if there were no others."""
    told = {one.id: one for one in (assignment.instances if assignment else ())}
    found = []
    for copy in detail.copies:
        instance = told.get(copy.instance)
        owner = (
            InstanceOwner(instance.tenant, instance.service)
            if instance
            else detail.owners.get(copy.instance, InstanceOwner())
        )
        if not (owner.service and copy.address) or copy.stage not in UP + GOING:
            continue
        weight = max(instance.rate_per_second if instance else 0.0, SMALLEST_WEIGHT)
        endpoint = EndpointCopy(copy.id, node, copy.address, weight, copy.stage in GOING)
        found.append(ServiceCopy(owner_name(owner.tenant, owner.service), copy.instance, endpoint, instance))
    return tuple(found)


def list_services(copies: Iterable[ServiceCopy], limits: Mapping[str, GatewayLimit]) -> tuple[ServiceEndpoints, ...]:
    """Every service that has a copy or a limit, by name."""
    by_service: dict[str, list[ServiceCopy]] = {name: [] for name in limits}
    known = list(copies)
    told = {one.instance for one in known if one.told is not None}
    for one in known:
        if one.told is not None or one.instance not in told:  # else a node speaks of what another one was told to run
            by_service.setdefault(one.service, []).append(one)
    return tuple(_service(name, by_service[name], limits.get(name, GatewayLimit())) for name in sorted(by_service))


def _service(name: str, copies: list[ServiceCopy], limit: GatewayLimit) -> ServiceEndpoints:
    promised = next((one.told for one in copies if one.told is not None), None)
    wanted = any(one.up and one.told is not None for one in copies)
    routed = [_without_orders(one) if wanted and one.told is None else one for one in copies]
    return ServiceEndpoints(
        name,
        tuple(one.copy for one in sorted(routed, key=lambda one: (one.copy.node, one.copy.id))),
        limit.queue_limit,
        limit.shed_share,
        limit.retry_after_seconds,
        promised.slo_ms if promised else 0.0,
        promised.percentile if promised else 0.0,
    )


def _without_orders(one: ServiceCopy) -> ServiceCopy:
    """Its node will drain it, and needs not be waited for: others serve."""
    return replace(one, copy=msgspec.structs.replace(one.copy, drained=True))


def filter_tenant(told: Iterable[ServiceEndpoints], tenant: str) -> tuple[ServiceEndpoints, ...]:
    """A tenant's own services, without addresses: a copy takes commands where it takes requests."""
    mine = [one for one in told if one.service.startswith(f"{tenant}/")]
    return tuple(
        msgspec.structs.replace(one, copies=tuple(msgspec.structs.replace(copy, address="") for copy in one.copies))
        for one in mine
    )
