"""A token that is revoked while the database is away: what it left open ends once the database is back."""

from __future__ import annotations

import psycopg
import pytest

from tests.app.nodes.test_assignment_polls import held, in_background
from tests.support.patience import patience, until
from tests.support.postgres import DatabaseServer
from tests.support.reports import poll
from tests.support.server import running_server


@pytest.mark.slow
def test_case_24_a_token_revoked_while_the_database_is_away_ends_its_poll_once_it_is_back(
    postgres: DatabaseServer,
) -> None:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1") as server, psycopg.connect(url, autocommit=True) as inside:
        token, other = server.token("node", node="node-1"), server.token("node", node="node-2")
        polls = [
            in_background(lambda t=each, n=name: poll(server, t, n, wait=60))  # type: ignore[misc]
            for each, name in ((token, "node-1"), (other, "node-2"))
        ]
        held(server, 2)
        postgres.takes_connections(url, False)
        # The server's thread that hears of changes keeps its connections: it learns that some token ended.
        inside.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gpuwright'")
        with inside.transaction():
            inside.execute("UPDATE token SET revoked_at = now() WHERE id = %s", [token.split("_")[1]])
            inside.execute("UPDATE version SET value = value + 1 WHERE name = 'token'")
        until(lambda: '"stream": "token"' in server.log_path.read_text(), "the poll cannot be looked at")
        postgres.takes_connections(url, True)
        assert polls[0].result(patience()).status == 401
        assert not polls[1].done()
    postgres.drop(url)
