"""Gateways that this node speaks to through the control plane only: they follow what it reports, and cannot answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agents.seams.routes import Acknowledged, Route, RouteState

FOLLOWED = "followed"  # as --gateway names them
SETTLED_SECONDS = 3.0  # a report (1 s after the last one), the control plane, a long poll, HAProxy: then twice that


class Followers:
    """A route is taken to be in force when it has been said for so long without a change.

    A hope, where a sidecar's acknowledgement is knowledge: a gateway that lags behind this finds a copy gone, and sends
    its requests to another one as far as they may be sent anew.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since: dict[Route, float] = {}

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        now = self._monotonic()
        self._since = {route: self._since.get(route, now) for route in map(_worded, routes)}
        return Acknowledged(tuple(self._state(route, now) for route in self._since))

    def _state(self, route: Route, now: float) -> RouteState:
        settled = now - self._since[route] >= SETTLED_SECONDS
        return RouteState(route.copy, settled and not route.drained, 0 if settled and route.drained else 1)


def _worded(route: Route) -> Route:
    """What matters of it: another weight is no other route."""
    return Route(route.copy, route.service, route.address, 1.0, route.drained)
