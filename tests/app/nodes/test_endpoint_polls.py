"""A server reads where copies are for those who ask: gateways."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import event

from agents.contract.gateways import GatewayCounts
from app.nodes.endpoint_polls import EndpointPolls
from app.nodes.gateway_progress import GatewayProgress, RoutedVersion
from app.nodes.node_lane import NodeLane
from app.store.database.database import Database
from app.store.database.notices import Notices
from app.store.database.urls import libpq_url
from app.store.fleet import endpoints, gateways
from app.tokens import Authenticator
from tests.support.patience import until


class CountedNotices(Notices):
    """Counts how often somebody has begun to wait."""

    waits = 0

    async def wait(self, name: str, after: int, timeout: float) -> int:
        self.waits += 1
        return await super().wait(name, after, timeout)


@pytest.mark.slow
def test_copies_of_nodes_are_read_from_the_first_gateway_on_and_not_before(database_url: str) -> None:
    database = Database(database_url, pool_size=2, direct=True)
    notices = CountedNotices(libpq_url(database_url), listen=True)
    lane = NodeLane(database)
    polls = EndpointPolls(lane, notices, Authenticator(database), ())
    reads: list[str] = []

    def note(_connection: Any, _cursor: Any, _sql: str, _values: Any, context: Any, _many: bool) -> None:
        if context.execution_options.get("statement") == "stamps_of_nodes":
            reads.append("read")

    def change() -> int:
        database.write(endpoints.note_declared)
        return database.read(endpoints.version)

    def report(sequence: int, version: int) -> None:
        database.write(lambda c: gateways.keep(c, "gateway", GatewayCounts("x", sequence, endpoints=version)))

    async def run() -> None:
        polls.start()
        newest = change()
        await asyncio.to_thread(until, lambda: notices.current("endpoint") == newest)
        waits = notices.waits
        assert await GatewayProgress(lane, polls).routed(newest) == RoutedVersion(newest), "no gateway follows"
        await asyncio.to_thread(until, lambda: notices.waits >= waits + 2)
        assert not reads
        report(1, 0)
        unread = await GatewayProgress(lane, polls).routed(newest)
        assert unread == RoutedVersion(0, is_known=False), "it cannot be known yet"
        await asyncio.to_thread(until, lambda: polls.known.reach(newest) == newest and len(reads) == 1)
        report(2, newest)
        assert await GatewayProgress(lane, polls).routed(newest) == RoutedVersion(newest)
        change()
        await asyncio.to_thread(until, lambda: len(reads) == 2)
        assert (await GatewayProgress(lane, polls).routed(newest)).behind == "", "no endpoint has changed"
        limit = {"shop/search": endpoints.GatewayLimit(queue_limit=5)}
        assert database.write(lambda c: endpoints.set_limits(c, limit))
        await asyncio.to_thread(until, lambda: polls.known.has_changed_since(newest, newest + 2))
        behind = await GatewayProgress(lane, polls).routed(newest + 2)
        assert behind == RoutedVersion(newest, "gateway"), "it reports, and has not taken the limit"
        other = EndpointPolls(lane, notices, Authenticator(database), ())
        other.start()
        other.note_gateway()
        await asyncio.to_thread(until, lambda: other.known.reach(newest + 2) == newest + 2)
        unsure = await GatewayProgress(lane, other).routed(newest + 2)
        assert unsure == RoutedVersion(newest, is_known=False), "a server that has just started has seen no change"
        await other.stop()
        await polls.stop()

    event.listen(database.engine, "before_cursor_execute", note)
    notices.start()
    try:
        asyncio.run(run())
    finally:
        notices.stop()
        lane.close()
        database.close()
