"""Knows which nodes measure for a campaign, so that the answer to a report can say so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

from app.nodes.node_lane import NodeLane
from app.store.database.database import Unavailable
from app.store.fleet import campaigns

REREAD_SECONDS = 1.0


class CampaignWatch:
    """Reads the live campaigns at most once a second for all nodes together."""

    def __init__(self, lane: NodeLane) -> None:
        self._lane = lane
        self._reading = asyncio.Lock()
        self._live: Mapping[str, str] = {}
        self._tried_at = float("-inf")

    async def due(self, node: str) -> str:
        """Returns the campaign that the node measures for; empty: none. Without the database the last one known."""
        async with self._reading:
            if time.monotonic() >= self._tried_at + REREAD_SECONDS:
                with suppress(Unavailable):
                    self._live = await self._lane.read(campaigns.live_by_node)
                self._tried_at = time.monotonic()
        return self._live.get(node, "")
