"""One real server a module, on a database of its own, with a small world declared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.world import declare_world


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    rates = {"GPUWRIGHT_RATE_BURST": "100000", "GPUWRIGHT_REPORT_RATE_PER_SECOND": "10000"}
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", **rates) as running:
        declare_world(running)
        yield running
    postgres.drop(url)
