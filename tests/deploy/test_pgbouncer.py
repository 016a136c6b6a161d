"""The shipped configuration of PgBouncer: Debian's takes every word of it. All tests behind a pooler run through it."""

from __future__ import annotations

import configparser
from pathlib import Path

import psycopg

from app.store.database.guards import STATEMENT_MS
from app.store.database.pool import POOL_WAIT_SECONDS
from tests.support.postgres import SHIPPED_PGBOUNCER, DatabaseServer, at_port, pgbouncer


def shipped() -> dict[str, str]:
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(SHIPPED_PGBOUNCER.read_text())
    return dict(read["pgbouncer"])


def test_it_pools_transactions_and_cuts_nothing_off_that_gpuwright_would_not() -> None:
    found = shipped()
    assert found["pool_mode"] == "transaction"
    assert found["auth_type"] == "scram-sha-256"
    assert int(found["idle_transaction_timeout"]) * 1000 > STATEMENT_MS
    assert int(found["query_wait_timeout"]) > POOL_WAIT_SECONDS


def test_debians_pgbouncer_takes_every_word_of_it(postgres: DatabaseServer, tmp_path: Path) -> None:
    url = postgres.create_empty()
    with pgbouncer(tmp_path / "pgbouncer", postgres.server.url) as port:
        with psycopg.connect(at_port(url, port)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        log = (tmp_path / "pgbouncer" / "pgbouncer.log").read_text()
    postgres.drop(url)
    assert [line for line in log.splitlines() if "ERROR" in line or "unknown" in line.lower()] == []
