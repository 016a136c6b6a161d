"""Turns the control plane's endpoints into routes of nodes and limits of services."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from agents.contract.addresses import BadAddress, CopyAddress, find_objection, parse_address
from agents.contract.gateways import EndpointCopy, Endpoints, LeftOutRoute
from agents.gateway.desired import FOLLOWED, MOST_REASON
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit, SidecarCounts


@dataclass(frozen=True, slots=True)
class Followed:
    """The routes and limits to follow, and which endpoints were left out."""

    sources: Mapping[str, DeclaredRoutes]
    limits: Mapping[str, ServiceLimit]
    left_out: tuple[LeftOutRoute, ...]
    version: int = 0  # of the endpoints


@dataclass(frozen=True, slots=True)
class EndpointsInForce:
    """The endpoints that a gateway has in force."""

    version: int | None  # None: not known
    left_out: tuple[LeftOutRoute, ...] = ()  # copies to which it does not route


class EndpointTaker(Protocol):
    """Puts the control plane's endpoints in force: an HAProxy's sidecar, or the routes of a cluster."""

    def follow(self, wanted: Followed) -> None:
        """Takes endpoints, to be put in force as soon as that is possible."""

    def is_routing(self) -> bool:
        """Returns whether it routes to copies that the control plane has reported."""

    def endpoints_in_force(self) -> EndpointsInForce: ...

    def counts(self) -> SidecarCounts | None:
        """Returns what was counted; None where requests do not pass."""


def follow_endpoints(endpoints: Endpoints, loopback: bool, own: Collection[CopyAddress] = ()) -> Followed:
    """Returns routes to every copy that can be reached from here, and a limit of every service: so it gets a slot.

    A loopback address of another machine would reach some other process here, so it counts only with `loopback`, which
    says that all nodes are this machine. Nothing leads to `own`, the addresses of the control plane and the sidecar.
    """
    routes: dict[str, dict[str, RouteSpec]] = {}
    limits = {}
    left_out: list[LeftOutRoute] = []
    for service in endpoints.services:
        limits[service.service] = ServiceLimit(
            service.queue_limit,
            service.shed_share,
            service.retry_after_seconds,
            service.slo_ms,
            service.percentile,
            service.tpot_ms,
            service.by_prefix,
        )
        for copy in service.copies:
            address, wrong = _reach(copy, loopback, own)
            if wrong:
                left_out.append(LeftOutRoute(copy.node, copy.id, wrong[:MOST_REASON]))
                continue
            of_node = routes.setdefault(FOLLOWED + copy.node, {})
            of_node[copy.id] = RouteSpec(
                copy.id, service.service, address, copy.weight, copy.drained, copy.in_time, copy.paths
            )
    sources = {source: _declare(tuple(of_node.values()), endpoints.paths) for source, of_node in routes.items()}
    return Followed(sources, limits, tuple(left_out), endpoints.version)


def _declare(routes: tuple[RouteSpec, ...], paths: Mapping[str, tuple[str, ...]]) -> DeclaredRoutes:
    used = {route.paths for route in routes}
    return DeclaredRoutes(0, routes, {key: rules for key, rules in paths.items() if key in used})


def _reach(copy: EndpointCopy, loopback: bool, own: Collection[CopyAddress]) -> tuple[str, str]:
    """Returns the copy's address in its only spelling, and why it is not routed."""
    try:
        known = parse_address(copy.address)
    except BadAddress as error:
        return "", str(error)
    objection = find_objection(known)
    if objection:
        return "", objection
    if known in own:
        return "", f"{known} is the control plane or this gateway, not a copy"
    if known.host.is_loopback and not loopback:
        return "", f"{known} is this machine, not the node; set --host of its agent (or --loopback of this gateway)"
    return str(known), ""
