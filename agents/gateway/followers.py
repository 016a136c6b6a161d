"""Gateways that this node reaches only through the control plane: they follow its reports, and cannot acknowledge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from agents.contract.fields import LEAVING_STAGES, UP_STAGES
from agents.contract.reports import Copy
from agents.seams.routes import Acknowledged, Route, RouteState

FOLLOWED = "followed"  # the value of --gateway
SETTLED_SECONDS = 3.0  # a control plane, a long poll, HAProxy: then twice that
LONGEST_SECONDS = 30.0  # a gateway that is behind delays a hand-over for less time than a step may take


@dataclass(frozen=True, slots=True)
class ReportedRoute:
    """A route as gateways learn it from a report; its weight comes from the plan."""

    copy: str
    address: str
    drained: bool


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """The reports in a row that held a route: when the first and the latest were stored."""

    first: float
    latest: float
    endpoints: int  # the version in which gateways learn the route
    routed: int  # the highest version that all known gateways had in force

    @property
    def settled(self) -> bool:
        seconds = self.latest - self.first
        return seconds >= SETTLED_SECONDS and (self.routed >= self.endpoints or seconds >= LONGEST_SECONDS)


class Followers:
    """Takes a route to be in force once the control plane stored it and, a while later, answers that gateways have it.

    A report that was sent counts for nothing: only its answer says that gateways can learn the route. The second answer
    says which endpoints they have put in force meanwhile. Without it, routes are unknown, and every copy stays.

    Unlike a sidecar's acknowledgement this is only likely: a gateway that has been silent for longer than the control
    plane waits for finds a copy gone, and sends its requests to another one if they may be repeated.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._stored: Mapping[ReportedRoute, StoredSpan] = {}
        self._lock = threading.Lock()  # the keeper declares, the thread of the reports notes answers

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        with self._lock:
            return Acknowledged(tuple(self._state(route) for route in routes))

    def note_stored(self, copies: Collection[Copy], endpoints: int, routed: int) -> None:
        """Notes that the control plane has just stored a report with these copies, and with no others.

        They are in the endpoints from version `endpoints` on; all gateways that it knows have `routed` in force.
        """
        now = self._monotonic()
        routes = [
            ReportedRoute(copy.id, copy.address, copy.stage in LEAVING_STAGES)
            for copy in copies
            if copy.address and copy.stage in UP_STAGES + LEAVING_STAGES
        ]
        with self._lock:
            self._stored = {route: self._extend(route, now, endpoints, routed) for route in routes}

    def next_report_seconds(self, longest: float) -> float:
        """Returns when the next report is due: soon while a stored route waits for a second answer."""
        with self._lock:
            waiting = any(not span.settled for span in self._stored.values())
        return min(SETTLED_SECONDS, longest) if waiting else longest

    def _extend(self, route: ReportedRoute, now: float, endpoints: int, routed: int) -> StoredSpan:
        before = self._stored.get(route)
        if before is None:
            return StoredSpan(now, now, endpoints, routed)
        return StoredSpan(before.first, now, before.endpoints, max(before.routed, routed))

    def _state(self, route: Route) -> RouteState:
        span = self._stored.get(ReportedRoute(route.copy, route.address, route.drained))
        settled = span is not None and span.settled
        if route.drained:
            return RouteState(route.copy, not settled, 0 if settled else 1)  # until then it may get requests
        return RouteState(route.copy, settled, 1)
