"""A server whose people sign in at a real provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.people.oidc_provider import RunningProvider, describe_server, running_provider
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server


@dataclass(frozen=True, slots=True)
class House:
    """The server, and the provider that it trusts."""

    server: RunningServer
    provider: RunningProvider


@pytest.fixture(scope="module")
def house(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    url, folder = postgres.create(), tmp_path_factory.mktemp("provider")
    with running_server(url) as server, running_provider(folder, server.url) as provider:
        server.restart(**describe_server(provider.issuer, Path(folder) / "secret", server.url))
        yield House(server, provider)
    postgres.drop(url)
