"""Finds which endpoints every gateway has put in force, so that a node ends no copy that one of them still needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from app.nodes.endpoint_polls import EndpointPolls, EndpointSnapshot
from app.nodes.node_lane import NodeLane
from app.store.database.database import Unavailable
from app.store.fleet import gateways
from app.store.fleet.gateways import InForce

REREAD_SECONDS = 0.5  # a gateway reports every second
SILENT_SECONDS = 60.0  # a gateway that has not reported for so long is gone, and nothing waits for it
REPORTING_SECONDS = 10.0  # within which a gateway has reported for which a copy that leaves waits without a limit
# Between two reads, at most so much counts as silence: nodes that hand over report as often. In a longer gap the
# database, or this server, may have been away. A gateway reports within five seconds after that, and so has the time.
LONGEST_GAP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class AwaitedGateway:
    """A gateway that hand-overs wait for."""

    name: str
    endpoints: int  # the version that it has in force
    reports: bool  # it has reported just now


@dataclass(frozen=True, slots=True)
class RoutedVersion:
    """How far gateways have come."""

    version: int  # that all of them have in force
    behind: str = ""  # of those that report, the one with the oldest endpoints that have changed since
    is_known: bool = True  # False: none is known to be behind, but one that reports may be


@dataclass(slots=True)
class AwaitedGateways:
    """The gateways that hand-overs wait for.

    Silence counts only while gateways could report: in seconds that lie between reads which were answered. So a healthy
    gateway is still awaited after an outage, however long, and a gateway that is gone is given up after a minute in
    all, however often the database fails meanwhile.
    """

    _answered_seconds: float = 0.0
    _read_at: float | None = None
    _heard: dict[str, tuple[datetime, float]] = field(default_factory=dict)  # last report; when it was first read

    def read(self, reports: Iterable[InForce], now: float) -> list[AwaitedGateway]:
        """Returns the awaited gateways and what they have in force, by what a read has found just now."""
        if self._read_at is not None:
            self._answered_seconds += min(max(0.0, now - self._read_at), LONGEST_GAP_SECONDS)
        self._read_at = now
        before, self._heard, found = self._heard, {}, []
        for report in reports:
            known = before.get(report.gateway)
            is_news = known is None or known[0] != report.received_at
            last_report = (report.received_at, self._answered_seconds) if known is None or is_news else known
            self._heard[report.gateway] = last_report
            silent_seconds = self._answered_seconds - last_report[1]
            if silent_seconds <= SILENT_SECONDS:
                found.append(AwaitedGateway(report.gateway, report.endpoints, silent_seconds <= REPORTING_SECONDS))
        return found


def find_routed(awaited: Collection[AwaitedGateway], known: EndpointSnapshot, newest: int) -> RoutedVersion:
    """Returns how far these gateways have come; one that is silent hides none that reports and is behind.

    Only a server that has read the endpoints up to `newest` says that none is behind.
    """
    version = known.reach(min(gateway.endpoints for gateway in awaited))
    reporting = [(gateway.endpoints, gateway.name) for gateway in awaited if gateway.reports]
    if not reporting:
        return RoutedVersion(version)
    oldest, name = min(reporting)
    is_behind = known.has_changed_since(oldest, newest)
    return RoutedVersion(version, name if is_behind else "", is_behind is not None)


class GatewayProgress:
    """Reads what gateways report to any server, at most twice a second for all nodes together."""

    def __init__(self, lane: NodeLane, endpoints: EndpointPolls) -> None:
        self._lane = lane
        self._endpoints = endpoints
        self._reading = asyncio.Lock()
        self._awaited = AwaitedGateways()
        self._in_force: list[AwaitedGateway] | None = None  # None: it cannot be known
        self._tried_at = float("-inf")

    async def routed(self, newest: int) -> RoutedVersion:
        """Returns the version that all gateways have in force: `newest` if none follows, 0 if it cannot be known."""
        async with self._reading:
            if time.monotonic() >= self._tried_at + REREAD_SECONDS:
                try:
                    reports = await self._lane.read(gateways.read_in_force)
                    self._in_force = self._awaited.read(reports, time.monotonic())
                    if self._in_force:
                        self._endpoints.note_gateway()
                except Unavailable:
                    self._in_force = None  # the reports that wait are answered without another try
                self._tried_at = time.monotonic()
        if self._in_force is None:
            return RoutedVersion(0, is_known=False)
        if not self._in_force:
            return RoutedVersion(newest)
        return find_routed(self._in_force, self._endpoints.known, newest)
