"""Runs a control plane for a single benchmark: its own Postgres and server process, gone afterwards."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from app import tokens
from app.embedded import EmbeddedPostgres
from app.store.access import tokens as token_rows
from app.store.database import schema
from app.store.database.database import Database
from cli.exits import Failed
from simulation.own_database import vanishing_folder
from simulation.real.ending import bind_command, end_process

START_SECONDS = 60.0
END_SECONDS = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class System:
    """The running system of a benchmark."""

    host: str
    ports: Sequence[int]  # one of each server
    admin_token: str
    database_url: str
    server_pids: Sequence[int]
    postgres_pid: int
    admin_conninfo: str  # of Postgres's superuser

    @property
    def port(self) -> int:
        """Where the first server listens."""
        return self.ports[0]

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request as the admin, and returns the answer's JSON."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            headers = {"Authorization": f"Bearer {self.admin_token}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise Failed(f"{method} {path} was answered {answer.status}: {text[:500]!r}")
            return json.loads(text)
        finally:
            connection.close()

    def checkpoint(self) -> None:
        """Has Postgres write all that has changed to disk."""
        with psycopg.connect(self.admin_conninfo, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    def cpu_seconds(self) -> dict[str, float]:
        """Returns processor time used so far, by all servers and by Postgres."""
        return {"server": sum(map(_cpu_seconds, self.server_pids)), "postgres": _cpu_seconds(self.postgres_pid)}


@contextmanager
def own_system(say: Say, servers: int = 1) -> Iterator[System]:
    """Starts everything in a folder that is deleted afterwards."""
    with vanishing_folder("gpuwright-bench-") as folder, ExitStack() as running:
        say(f"starting Postgres and {'a server' if servers == 1 else f'{servers} servers'}")
        postgres = running.enter_context(EmbeddedPostgres(folder, say=say))
        schema.migrate(postgres.url)
        (admin,) = make_tokens(postgres.url, [("admin", "")])
        started = [
            running.enter_context(_own_server(say, postgres.url, folder / f"server-{number}.log"))
            for number in range(servers)
        ]
        yield System(
            "127.0.0.1",
            [port for port, _ in started],
            admin,
            postgres.url,
            [pid for _, pid in started],
            postgres.pid,
            postgres.admin_conninfo,
        )


@contextmanager
def _own_server(say: Say, database_url: str, log_path: Path) -> Iterator[tuple[int, int]]:
    """Yields the port and the process of a server."""
    environment = {**os.environ, "DATABASE_URL": database_url, "GPUWRIGHT_DATABASE_DIRECT": "1"}
    environment |= {"GPUWRIGHT_RATE_PER_SECOND": "100000", "GPUWRIGHT_RATE_BURST": "100000"}
    port = _free_port()
    command = [sys.executable, "-m", "cli.main", "serve", "--port", str(port)]
    with log_path.open("ab") as log:
        server = subprocess.Popen(
            bind_command(command), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _await_ready(port, server, log_path)
        yield port, server.pid
    finally:
        end_process(server, END_SECONDS)
        for line in _complaints(log_path):
            say(f"server: {line}")


def make_tokens(database_url: str, wanted: Sequence[tuple[str, str]]) -> list[str]:
    """Puts tokens of (scope, node) into the database directly, and returns them."""
    database = Database(database_url, pool_size=1, direct=True)
    made = [tokens.new() for _ in wanted]
    try:
        with database.engine.begin() as connection:
            for new, (scope, node) in zip(made, wanted, strict=True):
                token_rows.insert(
                    connection,
                    token_rows.TokenDraft(
                        id=new.id,
                        secret_hash=new.secret_hash,
                        scope=scope,
                        node=node,
                        created_by="bench",
                    ),
                )
    finally:
        database.close()
    return [new.text for new in made]


def _await_ready(port: int, server: subprocess.Popen[bytes], log_path: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.05)
        finally:
            connection.close()
    raise Failed(f"the server did not start: {log_path.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _complaints(log_path: Path) -> list[str]:
    """Returns the first lines of the log that are more than information."""
    bad = []
    for line in log_path.read_text(errors="replace").splitlines():
        try:
            if json.loads(line).get("level", "").lower() in ("info", "debug"):
                continue
        except (ValueError, AttributeError):
            pass
        bad.append(line[:600])
    return bad[:20]


def _cpu_seconds(pid: int) -> float:
    """Returns the processor time of a process and its descendants."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        used[int(folder.name)] = sum(int(value) for value in fields[11:15]) / tick  # with ended children

    def below(candidate: int) -> bool:
        while candidate and candidate != pid:
            candidate = parents.get(candidate, 0)
        return candidate == pid

    return sum(seconds for candidate, seconds in used.items() if below(candidate))
