"""A disk that is really full, under the agent, a gateway's sidecar or Postgres; to be run as root in mounts of its own.

Usage: unshare --mount python -m tests.proofs.full_disk agent|sidecar|postgres FOLDER

A small file system in memory is mounted over the folder. It is filled to the last byte while the part works, and
emptied again; what must hold is asserted here.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from agents.gateway import state_file
from agents.gateway.desired import Desired
from agents.gateway.wire import DeclaredRoutes
from agents.node.state_folder import AgentMemory, StateFolder
from tests.support.nodes import assigned, machine, ready, running, served
from tests.support.patience import until
from tests.support.postgres import postgres_of_the_wheel
from tests.support.reports import instance, report, send
from tests.support.server import Reply, running_server
from tests.support.world import declare_world, service

MEGABYTES = {"agent": 8, "sidecar": 1, "postgres": 300}
PIECE_BYTES = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGESIZE")


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Leaves not a byte while the block runs."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        size = PIECE_BYTES
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    assert os.statvfs(folder).f_bfree == 0
    try:
        yield
    finally:
        filler.unlink()


class FailedTicks(logging.Handler):
    """Counts what the keeper could not do."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "the journal cannot be written, so nothing is changed" in record.getMessage()


def agent(folder: Path) -> None:
    """I2: what cannot be journaled is not done; what serves goes on, and the rest follows when there is room."""
    failed = FailedTicks()
    logging.getLogger("agents").addHandler(failed)
    state = StateFolder(folder / "node" / "state")
    with machine(folder / "node") as made, running(made) as node:
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "it is ready")
        memory = AgentMemory(1, 1, 1, assigned(1, served("search-1")))
        state.keep_memory(memory)
        before = made.copies()
        journal = folder / "node" / "state" / "journal.jsonl"
        with journal.open("ab") as file:
            file.write(b"\n" * (-journal.stat().st_size % PAGE_BYTES))  # the next line needs another page
        with full(folder):
            with pytest.raises(OSError, match="No space left"):
                state.keep_memory(AgentMemory(1, 1, 2, assigned(2)))
            assert state.memory() == memory, "the assignment taken last is whole"
            node.offer(assigned(2, served("search-1"), served("images-1", gpu=1)))
            until(lambda: failed.count > 1, "the keeper tries, and cannot record it")
            assert made.copies() == before, "nothing is started that is not on record"
            assert ready(node, "search-1")
        until(lambda: ready(node, "search-1", "images-1"), "with room it goes on by itself")
        assert journal.read_bytes().endswith(b"\n"), "no torn line is left"


def sidecar(folder: Path) -> None:
    """Routes that cannot be kept are refused, and those that were kept stay whole."""
    path = folder / "desired.json"
    kept = Desired(sources={"node-1": DeclaredRoutes(1, ())})
    state_file.keep(path, kept)
    before = path.read_bytes()
    with full(folder), pytest.raises(OSError, match="No space left"):
        state_file.keep(path, Desired(sources={"node-1": DeclaredRoutes(2, ())}))
    assert path.read_bytes() == before
    state_file.keep(path, Desired(sources={"node-1": DeclaredRoutes(2, ())}))
    assert state_file.read(path).sources["node-1"].sequence == 2


def postgres(folder: Path) -> None:
    """Reports are shed and counted, nothing acknowledged is lost, and all goes on when there is room again."""
    with postgres_of_the_wheel(folder / "data") as database, running_server(database.create()) as server:
        declare_world(server)
        token = server.token("node", node="node-1")
        pid, sequence = database.server.pid, iter(range(1, 100_000))

        def send_large() -> Reply:
            instances = [instance(f"i-{uuid4().hex}") for _ in range(200)]
            return send(server, token, report("node-1", next(sequence), instances=instances))

        assert send_large().status == 200
        acknowledged = []
        with full(folder):
            until(lambda: send_large().status == 503, "reports are shed")
            for number in range(200):
                reply = server.request("PUT", f"/api/v1/services/shop/late-{number}", service(f"late-{number}", "shop"))
                assert reply.status in (201, 503), reply.text
                acknowledged += [f"late-{number}"] if reply.status == 201 else []
            metrics = server.request("GET", "/metrics").text
            assert 'gpuwright_reports_shed_total{reason="disk_full"}' in metrics
            assert server.request("GET", "/healthz", token="").status == 200
            assert server.process.poll() is None
            assert database.server.pid == pid, "Postgres has not been restarted"
        until(lambda: send_large().status == 200, "reports are stored again")
        there = {name for name in acknowledged if server.request("GET", f"/api/v1/services/shop/{name}").status == 200}
        assert there == set(acknowledged), "no acknowledged write is lost (I5)"
        assert server.request("PUT", "/api/v1/services/shop/after", service("after", "shop")).status == 201


PARTS: dict[str, Callable[[Path], None]] = {"agent": agent, "sidecar": sidecar, "postgres": postgres}


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    options = f"size={MEGABYTES[name]}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    PARTS[name](folder)
    print("held")


if __name__ == "__main__":
    main()
