"""What the control plane's endpoints mean here: routes of nodes, and limits of services."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from agents.contract import EndpointCopy, Endpoints
from agents.gateway.desired import FOLLOWED, Malformed, split_address
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit


@dataclass(frozen=True, slots=True)
class Followed:
    """What is to be desired, and what was left out of it."""

    sources: Mapping[str, DeclaredRoutes]
    limits: Mapping[str, ServiceLimit]
    left_out: tuple[str, ...]


def follow_endpoints(told: Endpoints, loopback: bool) -> Followed:
    """Every copy that can be reached from here.

    An address on loopback means another machine's copy here, or a stranger's: it counts only where all nodes are known
    to be this machine.
    """
    routes: dict[str, dict[str, RouteSpec]] = {}
    limits = {}
    left_out = []
    for service in told.services:
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
    # Link-local: where clouds tell a machine its credentials.
    if known.is_unspecified or known.is_multicast or known.is_link_local:
        return f"{copy.address} is no address of a node"
    if known.is_loopback and not loopback:
        return f"{copy.address} is this machine, not the node; its agent wants --host (or this gateway --loopback)"
    return ""
