"""Derives the endpoints of services, for gateways, from what nodes report and what they are assigned.

A copy is an endpoint from when its node wants it routed until its node reports that it has gone. It is drained as soon
as its node drains it, or when its instance is no longer assigned while another copy of the service is up: never the
last copy that serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from agents.contract.addresses import IpNetwork
from agents.contract.assignments import AssignedInstance, Assignment, owner_name
from agents.contract.fields import LEAVING_STAGES, UP_STAGES
from agents.contract.gateways import EndpointCopy, Endpoints, ServiceEndpoints
from agents.contract.paths import build_table, find_rules, hash_rules
from agents.contract.reports import Copy
from app.nodes.detail import NodeDetail
from app.nodes.refused_copies import RefusedCopy, find_address_fault
from app.store.fleet.endpoints import GatewayLimit

SMALLEST_WEIGHT = 1e-6
MOST_UP = 2  # copies of one instance, as in a hand-over
MOST_LEAVING = 4


@dataclass(frozen=True, slots=True)
class ServiceCopy:
    """A copy of a service on a node."""

    service: str  # tenant/name
    instance: str
    copy: EndpointCopy
    assigned: AssignedInstance | None  # None: no node is assigned it any more
    paths: tuple[str, ...] | None = None  # that callers may use; None: its agent does not say so

    @property
    def up(self) -> bool:
        return not self.copy.drained


@dataclass(frozen=True, slots=True)
class NodeCopies:
    """The copies of a node that gateways may send requests to, and why they may not to others."""

    copies: tuple[ServiceCopy, ...] = ()
    refused: tuple[RefusedCopy, ...] = ()


def list_copies(
    node: str,
    detail: NodeDetail,
    assignment: Assignment | None,
    services: Mapping[str, str],
    networks: Sequence[IpNetwork] = (),
) -> NodeCopies:
    """Returns the copies of services on a node, as gateways should treat them without regard to other copies.

    A node is believed about the instances that it is assigned, or lately was, and about nothing else: `services` names
    their services. What it says of their number and addresses has bounds.
    """
    assigned = {line.id: line for line in (assignment.instances if assignment else ())}
    found: list[ServiceCopy] = []
    refused: list[RefusedCopy] = []
    counts: dict[tuple[str, bool], int] = {}
    for copy in detail.copies:
        if not copy.address or copy.stage not in UP_STAGES + LEAVING_STAGES:
            continue
        instance = assigned.get(copy.instance)
        service = owner_name(instance.tenant, instance.service) if instance else services.get(copy.instance, "")
        if instance is not None and not instance.service:
            continue  # a job
        key = (copy.instance, copy.stage in LEAVING_STAGES)
        counts[key] = counts.get(key, 0) + 1
        objection = _objection(copy, service, counts[key], networks)
        if objection:
            refused.append(RefusedCopy(copy.id, objection))
            continue
        weight = max(instance.rate_per_second if instance else 0.0, SMALLEST_WEIGHT)
        paths = find_rules(detail.paths, copy.paths)  # under their own key: a node could give them another's
        rules_key = "" if paths is None else hash_rules(paths)
        endpoint = EndpointCopy(copy.id, node, copy.address, weight, copy.stage in LEAVING_STAGES, paths=rules_key)
        found.append(ServiceCopy(service, copy.instance, endpoint, instance, paths))
    return NodeCopies(tuple(found), tuple(refused))


def _objection(copy: Copy, service: str, number: int, networks: Sequence[IpNetwork]) -> str:
    """Returns why gateways may not send requests to a copy; `number` counts its instance's copies in such a stage."""
    if not service:
        return f"instance {copy.instance} is not assigned to this node"
    most = MOST_LEAVING if copy.stage in LEAVING_STAGES else MOST_UP
    if number > most:
        return f"instance {copy.instance} has more than {most} copies like this one, which is {copy.stage}"
    return find_address_fault(copy.address, tuple(networks))


def list_endpoints(
    version: int, copies: Iterable[ServiceCopy], limits: Mapping[str, GatewayLimit], declared: Iterable[str]
) -> Endpoints:
    """Returns every service that is declared, or has a copy or a limit, by name.

    Requests of a service without a copy belong to it as well: gateways answer and count them.
    """
    by_service: dict[str, list[ServiceCopy]] = {name: [] for name in (*limits, *declared)}
    known = list(copies)
    assigned = {copy.instance for copy in known if copy.assigned is not None}
    for copy in known:
        if copy.assigned is not None or copy.instance not in assigned:  # otherwise the instance belongs to another node
            by_service.setdefault(copy.service, []).append(copy)
    services = tuple(_service(name, by_service[name], limits.get(name, GatewayLimit())) for name in sorted(by_service))
    return Endpoints(version, services, build_table(copy.paths for listed in by_service.values() for copy in listed))


def _service(name: str, copies: list[ServiceCopy], limit: GatewayLimit) -> ServiceEndpoints:
    promised = next((copy.assigned for copy in copies if copy.assigned is not None), None)
    is_served = any(copy.up and copy.assigned is not None for copy in copies)
    routed = [_drain(copy) if is_served and copy.assigned is None else copy for copy in copies]
    known = [_add_open_limit(copy, limit) for copy in routed]
    return ServiceEndpoints(
        name,
        tuple(sorted(known, key=lambda copy: (copy.node, copy.id))),
        limit.queue_limit,
        limit.shed_share,
        limit.retry_after_seconds,
        promised.slo_ms if promised else 0.0,
        promised.percentile if promised else 0.0,
        promised.tpot_ms if promised else 0.0,
        promised.by_prefix if promised else False,
    )


def _drain(copy: ServiceCopy) -> ServiceCopy:
    """Drains a copy at once: its node will drain it as well, and others serve."""
    return replace(copy, copy=msgspec.structs.replace(copy.copy, drained=True))


def _add_open_limit(copy: ServiceCopy, limit: GatewayLimit) -> EndpointCopy:
    """Returns the copy with how many open requests it answers in time, if the plan says so of its place."""
    most = limit.in_time.get(f"{copy.copy.node}/{copy.assigned.gpu}", 0) if copy.assigned else 0
    return msgspec.structs.replace(copy.copy, in_time=most) if most else copy.copy


def select_services(endpoints: Endpoints, tenant: str, service: str) -> Endpoints:
    """Returns one service or all, of a tenant or of all; a tenant's have no addresses, where copies take commands."""
    shown = [
        each
        for each in endpoints.services
        if each.service.startswith(f"{tenant}/" if tenant else "") and service in ("", each.service)
    ]
    if tenant:
        shown = [
            msgspec.structs.replace(each, copies=tuple(_hide_address(copy) for copy in each.copies)) for each in shown
        ]
    keys = {copy.paths for each in shown for copy in each.copies}
    paths = {key: rules for key, rules in endpoints.paths.items() if key in keys}
    return Endpoints(endpoints.version, tuple(shown), paths)


def _hide_address(copy: EndpointCopy) -> EndpointCopy:
    return msgspec.structs.replace(copy, address="")
