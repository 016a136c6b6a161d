"""One database after the other for runs in virtual time, on one Postgres that vanishes with its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import psycopg

from app.embedded import EmbeddedPostgres
from app.postgres.admission import ROLE
from app.store.database import schema
from simulation.own_database import vanishing_folder

TEMPLATE = "migrated"


class EmptyDatabases:
    """Migrated, empty databases on a server that nothing else uses."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._numbers = count()
        self._execute(f"ALTER ROLE {ROLE} SET synchronous_commit = off")  # nothing here is to survive a crash
        self._execute(f"CREATE DATABASE {TEMPLATE} OWNER {ROLE}")
        schema.migrate(self._url(TEMPLATE))

    @contextmanager
    def one(self) -> Iterator[str]:
        """Yields the URL of a new database, which is dropped afterwards."""
        name = f"run_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER {ROLE}")
        try:
            yield self._url(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _url(self, name: str) -> str:
        return urlunsplit(urlsplit(self._server.url)._replace(path="/" + name))

    def _execute(self, sql: str) -> None:
        with psycopg.connect(self._server.admin_conninfo, autocommit=True) as admin:
            admin.execute(sql.encode())


@contextmanager
def own_databases(prefix: str) -> Iterator[EmptyDatabases]:
    """Yields a source of databases on a server of its own, in a folder that vanishes even if the process is killed."""
    with vanishing_folder(prefix) as folder, EmbeddedPostgres(folder, say=lambda line: None) as server:
        yield EmptyDatabases(server)
