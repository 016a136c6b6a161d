"""FAILURES 4, 5, 6: server and Postgres killed under writes; what was acknowledged is there, whole, and once."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from dataclasses import dataclass, field

import psycopg
import pytest

from app.embedded import EmbeddedPostgres
from tests.support.patience import patience, until
from tests.support.server import Reply, RunningServer, running_server

ROUNDS = 100 if os.environ.get("GPUWRIGHT_SOAK") else 2
WRITERS = 4


@dataclass
class Writers:
    """Threads that each apply pairs of tenants, repeating a request with its key until it is answered."""

    server: RunningServer
    acknowledged: list[str] = field(default_factory=list)
    unexpected: list[Reply] = field(default_factory=list)
    repeated: int = 0
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._write, args=[n]) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(patience())
            assert not thread.is_alive(), "hung"

    def _write(self, writer: int) -> None:
        n = 0
        while not self._ending.is_set():
            n += 1
            self._apply_until_answered(f"w{writer}-{n}")

    def _apply_until_answered(self, name: str) -> None:
        documents = "---\n".join(
            f"apiVersion: gpuwright/v1\nkind: Tenant\nmetadata: {{name: {name}-{half}}}\nspec: {{}}\n"
            for half in ("left", "right")
        )
        headers = {"Idempotency-Key": name, "Content-Type": "application/yaml"}
        while True:
            try:
                reply = self.server.request("POST", "/api/v1/apply", documents, headers=headers)
            except (OSError, http.client.HTTPException):
                reply = None
            if reply is not None and reply.status == 200:
                actions = {change["action"] for change in reply.json["changes"]}
                if actions != {"created"}:  # the stored answer of the first time, not a second effect
                    self.unexpected.append(reply)
                self.acknowledged.append(name)
                return
            if reply is not None and reply.status != 503:
                self.unexpected.append(reply)
                return
            self.repeated += 1
            time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(7200 if ROUNDS > 2 else 900)
def test_nothing_acknowledged_is_lost_half_done_or_done_twice(postgres_of_its_own: EmbeddedPostgres) -> None:
    url = postgres_of_its_own.url
    # The flood is the test's own: it must not be slowed by what protects against floods.
    environment = {"GPUWRIGHT_RATE_PER_SECOND": "100000", "GPUWRIGHT_RATE_BURST": "100000"}
    with running_server(url, **environment) as server:
        writers = Writers(server)
        writers.start()
        try:
            for _ in range(ROUNDS):
                some_writes(writers)
                os.kill(postgres_of_its_own.pid, signal.SIGKILL)
                some_writes(writers)
                server.restart()
        finally:
            writers.end()
        assert writers.unexpected == []
        assert writers.repeated > 0

    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT name, generation, resource_version FROM object WHERE kind = 'Tenant'")
        stored = {name: (generation, version) for name, generation, version in rows}
        changes = connection.execute("SELECT name, count(*) FROM change GROUP BY name").fetchall()
        audited = connection.execute("SELECT name, count(*) FROM audit WHERE kind = 'Tenant' GROUP BY name").fetchall()
    written = {f"{name}-{half}" for name in writers.acknowledged for half in ("left", "right")}
    assert written <= stored.keys(), "an acknowledged write was lost"
    assert {name.replace("left", "right") for name in stored if "left" in name} == {
        name for name in stored if "right" in name
    }, "half of a write was done"
    assert {generation for generation, _ in stored.values()} == {1}
    assert len({version for _, version in stored.values()}) == len(stored)
    assert {count for _, count in changes} == {1}, "a write was done twice"
    assert all(count == 1 for _, count in audited)


def some_writes(writers: Writers) -> None:
    before = len(writers.acknowledged)
    until(lambda: len(writers.acknowledged) >= before + 10 or bool(writers.unexpected))
