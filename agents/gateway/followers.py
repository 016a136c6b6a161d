"""Gateways that this node reaches only through the control plane: they follow its reports, and cannot acknowledge."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.contract.fields import LEAVING_STAGES, UP_STAGES
from agents.contract.reports import Answer, Copy
from agents.seams.routes import Acknowledged, Route, RouteState

FOLLOWED = "followed"  # the value of --gateway
SETTLED_SECONDS = 3.0  # a control plane, a long poll, HAProxy: then twice that
# A new copy waits for no gateway longer than a step may take, and a copy that leaves for none that may be gone.
LONGEST_SECONDS = 30.0
# A copy that leaves waits for what is not known: a server that has just started knows it with the next change. Where
# nothing changes, the endpoints of now have long reached all gateways.
UNKNOWN_SECONDS = 300.0


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
    behind: str = ""  # the gateway that has older endpoints, though it reports
    is_known: bool = True  # False: none is known to be behind, but one that reports may be
    behind_at: float = -math.inf  # when it was named last

    def settled(self, drained: bool) -> bool:
        """Returns whether gateways have the route. A copy that one of them still uses does not leave."""
        if self.latest - self.first < SETTLED_SECONDS:
            return False
        if self.routed >= self.endpoints:
            return True
        if not drained:
            return self.latest - self.first >= LONGEST_SECONDS
        longest_seconds = LONGEST_SECONDS if self.is_known else UNKNOWN_SECONDS
        return self.latest - max(self.first, self.behind_at) >= longest_seconds

    @property
    def waits_for(self) -> str:
        """Returns a sentence about the gateway that a copy waits for; it changes once a minute, as reports do then."""
        seconds = self.latest - self.first
        if seconds < LONGEST_SECONDS or (self.is_known and not self.behind):
            return ""
        minutes = int(seconds // 60)
        lasts = f"{minutes} minute{'s' * (minutes > 1)}" if minutes else "half a minute"
        what = f"gateway {self.behind} has not taken version {self.endpoints}"
        if not self.is_known:
            what = f"the control plane has not known whether gateways have taken version {self.endpoints}"
        return f"{what} for {lasts}; copies that leave keep serving"


class Followers:
    """Takes a route to be in force once the control plane stored it and, a while later, answers that gateways have it.

    A report that was sent counts for nothing: only its answer says that gateways can learn the route. The second answer
    says which endpoints they have put in force meanwhile. Without it, routes are unknown, and every copy stays.

    A copy leaves once every gateway that reports has put that in force, however long this takes; where the control
    plane cannot tell, after five minutes. Unlike a sidecar's acknowledgement this is only likely: a gateway that has
    fallen silent for half a minute finds a copy gone, and sends its requests to another one if they may be repeated.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._stored: Mapping[ReportedRoute, StoredSpan] = {}
        self._lock = threading.Lock()  # the keeper declares, the thread of the reports notes answers

    def declare(self, routes: Sequence[Route]) -> Acknowledged:
        with self._lock:
            return Acknowledged(tuple(self._state(route) for route in routes))

    def note_stored(self, copies: Collection[Copy], answer: Answer) -> None:
        """Notes that the control plane has just stored a report with these copies, and with no others."""
        now = self._monotonic()
        routes = [
            ReportedRoute(copy.id, copy.address, copy.stage in LEAVING_STAGES)
            for copy in copies
            if copy.address and copy.stage in UP_STAGES + LEAVING_STAGES
        ]
        with self._lock:
            self._stored = {route: self._extend(route, now, answer) for route in routes}

    def next_report_seconds(self, longest: float) -> float:
        """Returns when the next report is due: soon while a stored route waits for a second answer."""
        with self._lock:
            waiting = any(not span.settled(route.drained) for route, span in self._stored.items())
        return min(SETTLED_SECONDS, longest) if waiting else longest

    def _extend(self, route: ReportedRoute, now: float, answer: Answer) -> StoredSpan:
        before = self._stored.get(route, StoredSpan(now, now, answer.endpoints, answer.routed))
        span = replace(before, latest=now, routed=max(before.routed, answer.routed), behind="", is_known=True)
        if span.routed >= span.endpoints:
            return span
        behind_at = now if answer.behind else before.behind_at
        return replace(span, behind=answer.behind, is_known=answer.gateways_known, behind_at=behind_at)

    def _state(self, route: Route) -> RouteState:
        span = self._stored.get(ReportedRoute(route.copy, route.address, route.drained))
        settled = span is not None and span.settled(route.drained)
        if route.drained:  # until then it may get requests
            waits_for = span.waits_for if span is not None and not settled else ""
            return RouteState(route.copy, not settled, 0 if settled else 1, waits_for)
        return RouteState(route.copy, settled, 1)
