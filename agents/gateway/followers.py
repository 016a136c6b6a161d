"""Gateways that this node reaches only through the control plane: they follow its reports, and cannot acknowledge."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agents.seams.routes import Acknowledged, Route, RouteState

FOLLOWED = "followed"  # the value of --gateway
SETTLED_SECONDS = 3.0  # a report (1 s after the last one), the control plane, a long poll, HAProxy: then twice that


class Followers:
    """Assumes that a route is in force once it has been reported unchanged for a while.

    Unlike a sidecar's acknowledgement this is only likely: a gateway that lags longer finds a copy gone, and sends its
    requests to another one if they may be repeated.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since: dict[Route, float] = {}

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        now = self._monotonic()
        self._since = {route: self._since.get(route, now) for route in map(_unweighted, routes)}
        return Acknowledged(tuple(self._state(route, now) for route in self._since))

    def _state(self, route: Route, now: float) -> RouteState:
        settled = now - self._since[route] >= SETTLED_SECONDS
        return RouteState(route.copy, settled and not route.drained, 0 if settled and route.drained else 1)


def _unweighted(route: Route) -> Route:
    """Returns the route without its weight, a change of which makes no new route."""
    return Route(route.copy, route.service, route.address, 1.0, route.drained)
