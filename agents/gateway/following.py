"""Turns the control plane's endpoints into routes of nodes and limits of services."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from agents.contract.gateways import EndpointCopy, Endpoints
from agents.gateway.desired import FOLLOWED, Malformed, split_address
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit


@dataclass(frozen=True, slots=True)
class Followed:
    """The routes and limits to follow, and which endpoints were left out."""

    sources: Mapping[str, DeclaredRoutes]
    limits: Mapping[str, ServiceLimit]
    left_out: tuple[str, ...]


def follow_endpoints(endpoints: Endpoints, loopback: bool) -> Followed:
    """Returns routes to every copy that can be reached from here.

    A loopback address of another machine would reach some other process here, so it counts only with `loopback`, which
    says that all nodes are this machine.
    """
    routes: dict[str, dict[str, RouteSpec]] = {}
    limits = {}
    left_out = []
    for service in endpoints.services:
        if service.queue_limit or service.shed_share or service.slo_ms:
            limits[service.service] = ServiceLimit(
                service.queue_limit, service.shed_share, service.retry_after_seconds, service.slo_ms
            )
        for copy in service.copies:
            wrong = _unreachable(copy, loopback)
            if wrong:
                left_out.append(f"copy {copy.id} of node {copy.node}: {wrong}")
                continue
            of_node = routes.setdefault(FOLLOWED + copy.node, {})
            of_node[copy.id] = RouteSpec(copy.id, service.service, copy.address, copy.weight, copy.drained)
    sources = {source: DeclaredRoutes(0, tuple(of_node.values())) for source, of_node in routes.items()}
    return Followed(sources, limits, tuple(left_out))


def _unreachable(copy: EndpointCopy, loopback: bool) -> str:
    try:
        host, _ = split_address(copy.address)
    except Malformed as error:
        return str(error)
    known = ipaddress.ip_address(host)
    known = getattr(known, "ipv4_mapped", None) or known  # ::ffff:127.0.0.1 is 127.0.0.1
    # Link-local addresses are where clouds serve a machine's credentials.
    if known.is_unspecified or known.is_multicast or known.is_link_local:
        return f"{copy.address} cannot be the address of a node"
    if known.is_loopback and not loopback:
        return f"{copy.address} is this machine, not the node; set --host of its agent (or --loopback of this gateway)"
    return ""
