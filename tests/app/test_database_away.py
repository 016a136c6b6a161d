"""FAILURES 4: while Postgres is away the server says so, with when to try again, and recovers unaided."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psycopg
import pytest

from app.embedded import EmbeddedPostgres
from tests.support.patience import until
from tests.support.server import Reply, RunningServer, running_server

pytestmark = pytest.mark.slow


def test_503_with_retry_after_while_postgres_is_away_and_200_once_it_is_back(
    postgres_of_its_own: EmbeddedPostgres, tmp_path: Path
) -> None:
    with running_server(postgres_of_its_own.url) as server:
        assert tenant(server, "before").status == 201
        process = server.process.pid
        postgres_of_its_own.stop()

        away = [tenant(server, "during"), server.request("GET", "/api/v1/tenants"), server.request("GET", "/readyz")]
        assert [reply.status for reply in away] == [503, 503, 503]
        assert all(int(reply.headers["retry-after"]) > 0 for reply in away)
        assert all(reply.headers["content-type"] == "application/problem+json" for reply in away)
        assert server.request("GET", "/healthz").status == 200

        with EmbeddedPostgres(tmp_path / "data"):
            until(lambda: server.request("GET", "/readyz").status == 200)
            names = [item["metadata"]["name"] for item in server.request("GET", "/api/v1/tenants").json["items"]]
            assert "before" in names
            assert tenant(server, "after").status == 201
            assert server.process.pid == process


def test_a_crash_of_postgres_is_503_or_nothing_at_all_to_clients(postgres_of_its_own: EmbeddedPostgres) -> None:
    """The server retries what is safe to retry; what it answers otherwise is 503, never 500."""
    with running_server(postgres_of_its_own.url) as server:
        assert tenant(server, "warm").status == 201
        statuses = set()
        for round_ in range(3):
            killed = postgres_of_its_own.pid
            os.kill(killed, signal.SIGKILL)
            for n in range(20):
                statuses.add(tenant(server, f"t{round_}-{n}").status)
            until(lambda: server.request("GET", "/readyz").status == 200)
        assert statuses <= {200, 201, 503}


def test_a_server_refuses_to_start_on_a_schema_it_does_not_know(database_url: str) -> None:
    """FAILURES 31, the replica's side."""
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    refusal = r"schema 9999, unknown to this gpuwright.*gpuwright db migrate"
    with pytest.raises(AssertionError, match=refusal), running_server(database_url):
        pass


def test_a_running_server_stops_being_ready_when_the_schema_moves_on(api: RunningServer, database_url: str) -> None:
    """FAILURES 31: somebody migrated to a newer schema under a running replica."""
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    reply = api.request("GET", "/readyz")
    assert reply.status == 503
    assert "gpuwright db migrate" in reply.json["detail"]


def tenant(server: RunningServer, name: str) -> Reply:
    return server.request("PUT", f"/api/v1/tenants/{name}", {"spec": {}})
