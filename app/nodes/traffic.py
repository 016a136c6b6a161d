"""Runs the traffic of nodes and gateways: reports, polls for assignments and endpoints, and which nodes measure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from app.nodes.assignment_polls import AssignmentPolls
from app.nodes.endpoint_polls import EndpointPolls
from app.nodes.gateway_progress import GatewayProgress
from app.nodes.intake import Intake
from app.nodes.node_lane import NodeLane
from app.nodes.refusals import Known
from app.settings import Settings
from app.store.database.database import Database, Unavailable
from app.store.database.notices import Notices
from app.store.fleet import campaigns
from app.tokens import Authenticator

OLDEST_MINUTE = timedelta(days=1)  # that a node may report: an honest clock is less wrong, and rows are one a minute

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


class NodeTraffic:
    """Started in the event loop that serves, stopped before the database is closed."""

    def __init__(
        self, settings: Settings, database: Database, notices: Notices, authenticator: Authenticator
    ) -> None:  # fmt: skip
        self.networks = settings.copies()
        self.lane = NodeLane(database)
        self.intake = Intake(database, min(OLDEST_MINUTE, timedelta(days=settings.telemetry_retention_days)))
        self.polls = AssignmentPolls(self.lane, notices, authenticator)
        self.endpoints = EndpointPolls(self.lane, notices, authenticator, self.networks)
        self.gateways = GatewayProgress(self.lane, self.endpoints)
        self.campaigns = CampaignWatch(self.lane)
        self.refusals: Known = set()  # in the audit already

    def start(self) -> None:
        self.intake.start()
        self.polls.start()
        self.endpoints.start()

    async def stop(self) -> None:
        await self.polls.stop()
        await self.endpoints.stop()
        self.intake.stop()
        self.lane.close()
