"""One small history for all tests of reports: they only read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import history
from tests.support.postgres import DatabaseServer


@pytest.fixture(scope="package")
def history_url(postgres: DatabaseServer) -> Iterator[str]:
    url = postgres.create()
    postgres.stands_at(url, history.NOW)
    history.write(url)
    yield url
    postgres.drop(url)
