"""Finds which endpoints every gateway has put in force, so that a node ends no copy that one of them still needs."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from app.nodes.endpoint_polls import EndpointPolls
from app.nodes.node_lane import NodeLane
from app.store.database.database import Unavailable
from app.store.fleet import gateways

REREAD_SECONDS = 0.5  # a gateway reports every second
SILENT = timedelta(minutes=1)  # a gateway that has not reported for so long is gone, and nothing waits for it
# After an outage of the control plane even a healthy gateway has been silent for as long as the outage took.
BEFORE_OUTAGE = timedelta(days=1)


class GatewayProgress:
    """Reads what gateways report to any server, at most twice a second for all nodes together."""

    def __init__(self, lane: NodeLane, endpoints: EndpointPolls) -> None:
        self._lane = lane
        self._endpoints = endpoints
        self._reading = asyncio.Lock()
        self._in_force: list[int] = []
        self._read_at = float("-inf")
        self._answering_since = float("inf")  # the first read after a start or an outage

    async def routed(self, newest: int) -> int:
        """Returns the version that all gateways have in force: `newest` if none follows, 0 if it cannot be known."""
        async with self._reading:
            if time.monotonic() >= self._read_at + REREAD_SECONDS:
                try:
                    await self._read()
                except Unavailable:
                    self._read_at = time.monotonic()  # the reports that wait are answered without another try
                    self._answering_since = float("inf")
        if self._answering_since == float("inf"):
            return 0
        return min((self._endpoints.reach(version) for version in self._in_force), default=newest)

    async def _read(self) -> None:
        now = time.monotonic()
        self._answering_since = min(self._answering_since, now)
        is_settled = now > self._answering_since + SILENT.total_seconds()
        within = SILENT if is_settled else BEFORE_OUTAGE
        self._in_force = await self._lane.read(lambda connection: gateways.in_force(connection, within))
        self._read_at = now
