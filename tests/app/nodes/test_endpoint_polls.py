"""A server reads where copies are for those who ask: gateways."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import event

from app.nodes.endpoint_polls import EndpointPolls
from app.nodes.node_lane import NodeLane
from app.store.database.database import Database
from app.store.database.notices import Notices
from app.store.database.urls import libpq_url
from app.store.fleet import endpoints
from app.tokens import Authenticator
from tests.support.patience import until


@pytest.mark.slow
def test_copies_of_nodes_are_read_from_the_first_gateway_on_and_not_before(database_url: str) -> None:
    database = Database(database_url, pool_size=2, direct=True)
    notices = Notices(libpq_url(database_url), listen=True)
    lane = NodeLane(database)
    polls = EndpointPolls(lane, notices, Authenticator(database))
    reads: list[str] = []

    def note(_connection: Any, _cursor: Any, _sql: str, _values: Any, context: Any, _many: bool) -> None:
        if context.execution_options.get("statement") == "stamps_of_nodes":
            reads.append("read")

    def change() -> int:
        database.write(endpoints.note_declared)
        return database.read(endpoints.version)

    async def run() -> None:
        polls.start()
        newest = change()
        await asyncio.to_thread(until, lambda: notices.current("endpoint") == newest)
        assert not reads
        assert polls.reach(newest) == 0, "as reports of nodes ask once there is a gateway; it cannot be known yet"
        await asyncio.to_thread(until, lambda: polls.reach(newest) == newest and len(reads) == 1)
        change()
        await asyncio.to_thread(until, lambda: len(reads) == 2)
        await polls.stop()

    event.listen(database.engine, "before_cursor_execute", note)
    notices.start()
    try:
        asyncio.run(run())
    finally:
        notices.stop()
        lane.close()
        database.close()
