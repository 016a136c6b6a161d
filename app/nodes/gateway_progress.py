"""Finds which endpoints every gateway has put in force, so that a node ends no copy that one of them still needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from app.nodes.endpoint_polls import EndpointPolls
from app.nodes.node_lane import NodeLane
from app.store.database.database import Unavailable
from app.store.fleet import gateways
from app.store.fleet.gateways import InForce

REREAD_SECONDS = 0.5  # a gateway reports every second
SILENT_SECONDS = 60.0  # a gateway that has not reported for so long is gone, and nothing waits for it
LONGEST_GAP_SECONDS = 20.0  # two reports of a node; in a longer one the database, or this server, was away


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

    def read(self, reports: Iterable[InForce], now: float) -> list[int]:
        """Returns the versions that the awaited gateways have in force, by what a read has found just now."""
        if self._read_at is not None:
            self._answered_seconds += min(max(0.0, now - self._read_at), LONGEST_GAP_SECONDS)
        self._read_at = now
        before, self._heard, found = self._heard, {}, []
        for report in reports:
            known = before.get(report.gateway)
            is_news = known is None or known[0] != report.received_at
            last_report = (report.received_at, self._answered_seconds) if known is None or is_news else known
            self._heard[report.gateway] = last_report
            if self._answered_seconds - last_report[1] <= SILENT_SECONDS:
                found.append(report.endpoints)
        return found


class GatewayProgress:
    """Reads what gateways report to any server, at most twice a second for all nodes together."""

    def __init__(self, lane: NodeLane, endpoints: EndpointPolls) -> None:
        self._lane = lane
        self._endpoints = endpoints
        self._reading = asyncio.Lock()
        self._awaited = AwaitedGateways()
        self._in_force: list[int] | None = None  # None: it cannot be known
        self._tried_at = float("-inf")

    async def routed(self, newest: int) -> int:
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
            return 0
        return min((self._endpoints.reach(version) for version in self._in_force), default=newest)
