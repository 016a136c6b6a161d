"""Real Postgres servers for tests: the wheel's, Debian's, and Debian's PgBouncer in front of one."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from app.embedded import EmbeddedPostgres
from app.postgres import child
from app.postgres.admission import ROLE
from app.store.database import schema
from tests.support.needs import need
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.scratch import MEMORY

DEBIAN_15 = Path("/usr/lib/postgresql/15")
PGBOUNCER = Path("/usr/sbin/pgbouncer")
SHIPPED_PGBOUNCER = Path(__file__).parents[2] / "deploy" / "pgbouncer" / "pgbouncer.ini"
TEMPLATE = "migrated"


@dataclass(frozen=True, slots=True)
class GivenDatabase:
    """A migrated, empty database of one test. `url` may lead through a pooler, `direct_url` never does."""

    name: str
    url: str
    direct_url: str

    @property
    def direct(self) -> bool:
        return self.url == self.direct_url


class DatabaseServer:
    """A running server on which each test gets a database of its own, copied from a migrated one."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self._admin: psycopg.Connection[Any] | None = None
        # In memory a file is copied for less than its pages are logged; a disk would have to take all of them at once.
        self._strategy = "FILE_COPY" if MEMORY in server.data_dir.parents else "WAL_LOG"
        # Now, for a test that is ended while it migrates would leave half a template to all later ones.
        schema.migrate(self._new(TEMPLATE, "template0"))

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()

    def answer_before_the_disk(self) -> None:
        """Commits wait for no disk: for a server that nobody crashes, whose tests would wait for little else."""
        self._execute(f"ALTER ROLE {ROLE} SET synchronous_commit = off")

    def hash_the_password_once(self) -> None:
        """Lets clients connect for half the time: thousands of rounds protect a password that somebody could guess."""
        password = urlsplit(self.server.url).password
        with psycopg.connect(self.server.admin_conninfo, autocommit=True) as admin:
            admin.execute("SET scram_iterations = 1")  # since Postgres 16
            admin.execute(f"ALTER ROLE {ROLE} PASSWORD '{password}'".encode())

    def create(self) -> str:
        """A new database with our schema; its URL."""
        return self._new(f"test_{secrets.token_hex(6)}", TEMPLATE)

    def create_empty(self) -> str:
        """A new database without a schema; its URL."""
        return self._new(f"test_{secrets.token_hex(6)}", "template0")

    def drop(self, url: str) -> None:
        name = urlsplit(url).path.lstrip("/")
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def stands_at(self, url: str, moment: datetime) -> None:
        """Makes this moment the time of every later connection to this database."""
        name = urlsplit(url).path.lstrip("/")
        self._execute(f"ALTER DATABASE \"{name}\" SET gpuwright.moment = '{moment.isoformat()}'")

    def takes_writes(self, url: str, yes: bool) -> None:
        """Lets later connections to this database write to it, or only read."""
        name = urlsplit(url).path.lstrip("/")
        self._execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {"off" if yes else "on"}')

    def takes_connections(self, url: str, yes: bool) -> None:
        """Lets a database take new connections or refuse them; those that are open stay."""
        name = urlsplit(url).path.lstrip("/")
        self._execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS {"true" if yes else "false"}')

    def _new(self, name: str, template: str) -> str:
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" OWNER {ROLE} STRATEGY {self._strategy}')
        return at_database(self.server.url, name)

    def _execute(self, sql: str) -> None:
        # Kept open: to connect costs a third of what a database does. A test may have ended the server meanwhile.
        if self._admin is None or not _is_open(self._admin):
            self._admin = psycopg.connect(self.server.admin_conninfo, autocommit=True)
        self._admin.execute(sql.encode())


def _is_open(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.pgconn.consume_input()  # reads that the server has ended, if so
    except psycopg.Error:
        return False
    return not connection.closed


def at_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path="/" + name))


def at_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))


@contextmanager
def postgres_of_the_wheel(folder: Path) -> Iterator[DatabaseServer]:
    with EmbeddedPostgres(folder) as server, closing(DatabaseServer(server)) as given:
        yield given


@contextmanager
def postgres_of_debian(folder: Path) -> Iterator[DatabaseServer]:
    need(DEBIAN_15 / "bin/postgres", "postgresql-15")
    with EmbeddedPostgres(folder, install=DEBIAN_15) as server, closing(DatabaseServer(server)) as given:
        yield given


@contextmanager
def pgbouncer(folder: Path, server_url: str) -> Iterator[int]:
    """Debian's PgBouncer as deploy/ configures it, in front of every database of a server; its port."""
    need(PGBOUNCER, "pgbouncer")
    server = urlsplit(server_url)
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "users.txt").write_text(f'"{server.username}" "{server.password}"\n')
    text = SHIPPED_PGBOUNCER.read_text()
    for theirs, ours in (
        ("gpuwright = host=127.0.0.1 port=5432 dbname=gpuwright", f"* = host=127.0.0.1 port={server.port}"),
        ("listen_port = 6432", f"listen_port = {port}"),
        ("auth_file = /etc/pgbouncer/userlist.txt\n", ""),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    (folder / "pgbouncer.ini").write_text(text)
    # It refuses root; as `nobody` it reads its files through a handle, for the folder is private to us.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with (folder / "pgbouncer.ini").open("a") as config:
        config.write(f"auth_file = /proc/self/fd/{handle}/users.txt\n")
    root = os.geteuid() == 0
    if root:
        for path in (folder, *folder.iterdir()):
            os.chown(path, 65534, 65534)
    launcher = [
        sys.executable,
        "-I",
        "-S",
        child.__file__,
        str(os.getpid()),
        "65534" if root else "-",
        "65534",
    ]
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(
            [*launcher, str(PGBOUNCER), f"/proc/self/fd/{handle}/pgbouncer.ini"],
            pass_fds=[handle],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(handle)
    try:
        _await_port(port, process, folder / "pgbouncer.log")
        yield port
    finally:
        process.kill()
        process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"pgbouncer ended: {log.read_text()}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(answers, lambda: f"pgbouncer does not answer: {log.read_text()}")
