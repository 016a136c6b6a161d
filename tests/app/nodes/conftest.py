"""One real server a module, and its database beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.store.database.database import Database
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", GPUWRIGHT_REPORT_RATE_PER_SECOND="10000") as running:
        yield running
    postgres.drop(url)


@pytest.fixture
def database(server: RunningServer) -> Iterator[Database]:
    opened = Database(server.database_url, pool_size=3, direct=True)
    yield opened
    opened.close()


@pytest.fixture
def node(server: RunningServer, request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    number = getattr(server, "nodes", 0) + 1
    server.nodes = number  # type: ignore[attr-defined]
    return f"node-{number}"


@pytest.fixture
def token(server: RunningServer, node: str) -> str:
    return server.token("node", node=node)
