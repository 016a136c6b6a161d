"""A client of a simulated MPS daemon, against a daemon that is a socket controlled by the test."""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.devices.simulated import client
from agents.devices.simulated.client import SimulatedClient, attach
from agents.devices.simulated.limits import memory_limit_gib
from agents.devices.simulated.refusals import OUT_OF_MEMORY, TOO_MANY_CLIENTS, CudaRefusal
from tests.support.patience import patience, until


class Daemon:
    """Sends what the test scripts, one connection at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / client.SOCKET
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.listener.listen(8)
        self.listener.settimeout(patience())

    def meet(self, answer: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
        connection, _ = self.listener.accept()
        connection.settimeout(patience())
        hello = received(connection)
        say(connection, answer)
        return connection, hello

    def close(self) -> None:
        self.listener.close()
        self.path.unlink(missing_ok=True)


def received(connection: socket.socket) -> dict[str, Any]:
    return json.loads(connection.makefile().readline())  # type: ignore[no-any-return]


def say(connection: socket.socket, words: dict[str, Any]) -> None:
    connection.sendall(json.dumps(words).encode() + b"\n")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "mps")
    yield daemon
    daemon.close()


def environ(folder: Path) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_MPS_PIPE_DIRECTORY": str(folder),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M",
    }


def attached(daemon: Daemon, failures: queue.SimpleQueue[str]) -> tuple[SimulatedClient, socket.socket, dict[str, Any]]:
    """The client opens in a thread of its own: the daemon, in this one, answers it."""
    opened: queue.SimpleQueue[SimulatedClient | None] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: opened.put(attach(environ(daemon.path.parent), 1.5, failures.put)))
    thread.start()
    connection, hello = daemon.meet({"smCount": 24})
    thread.join(patience())
    answer = opened.get(timeout=patience())
    assert answer is not None
    return answer, connection, hello


def test_a_client_says_its_limits_and_sees_its_multiprocessors(daemon: Daemon) -> None:
    attached_client, connection, hello = attached(daemon, queue.SimpleQueue())
    assert hello == {"pid": os.getpid(), "uuid": "GPU-1", "smPercent": 30, "memoryLimitGib": 2.0, "memoryGib": 1.5}
    assert attached_client.sm_count == 24
    attached_client.close()
    assert connection.recv(1) == b""


def test_without_a_daemon_a_process_runs_without_limits_and_without_warning(tmp_path: Path) -> None:
    assert attach(environ(tmp_path)) is None
    assert attach({"CUDA_VISIBLE_DEVICES": "GPU-1"}) is None


def test_a_refusal_carries_cudas_code(daemon: Daemon) -> None:
    thread = threading.Thread(target=lambda: daemon.meet({"error": 808, "message": "48 clients"}))
    thread.start()
    with pytest.raises(CudaRefusal, match="CUDA error 808: 48 clients") as refused:
        attach(environ(daemon.path.parent))
    assert refused.value.code == TOO_MANY_CLIENTS
    thread.join(patience())


def test_a_terminated_client_fails_once(daemon: Daemon) -> None:
    failures: queue.SimpleQueue[str] = queue.SimpleQueue()
    attached_client, connection, _ = attached(daemon, failures)
    say(connection, {"error": 810})
    assert "810" in failures.get(timeout=patience())
    attached_client.close()
    assert connection.recv(1) == b""
    assert failures.empty()


def test_a_client_comes_back_to_a_daemon_that_was_restarted_with_the_memory_it_holds(daemon: Daemon) -> None:
    failures: queue.SimpleQueue[str] = queue.SimpleQueue()
    attached_client, connection, _ = attached(daemon, failures)
    attached_client.memory_gib = 1.75
    daemon.close()
    connection.close()
    restarted = Daemon(daemon.path.parent)
    try:
        back, hello = restarted.meet({"smCount": 12})
        assert hello["memoryGib"] == 1.75
        until(lambda: attached_client.sm_count == 12)
        assert failures.empty()
        attached_client.close()
        back.close()
    finally:
        restarted.close()


def test_a_client_whose_daemon_stays_away_fails(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RECONNECT_SECONDS", 0.1)
    failures: queue.SimpleQueue[str] = queue.SimpleQueue()
    _, connection, _ = attached(daemon, failures)
    daemon.close()
    connection.close()
    assert "did not come back" in failures.get(timeout=patience())


def test_memory_beyond_the_limit_is_refused_and_what_was_held_is_held(daemon: Daemon) -> None:
    attached_client, connection, _ = attached(daemon, queue.SimpleQueue())

    def refuse() -> None:
        received(connection)
        say(connection, {"error": 2})

    thread = threading.Thread(target=refuse)
    thread.start()
    with pytest.raises(CudaRefusal) as refused:
        attached_client.hold(9.0)
    thread.join(patience())
    assert (refused.value.code, attached_client.memory_gib) == (OUT_OF_MEMORY, 1.5)
    attached_client.close()


@pytest.mark.parametrize(("text", "gib"), [("0=2048M", 2.0), ("0=1G", 1.0), ("1=8G,0=512M", 0.5)])
def test_a_memory_limit_is_read_in_mpss_form(text: str, gib: float) -> None:
    assert memory_limit_gib(text) == gib


def test_a_memory_limit_without_a_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="no limit of device 0 in G or M"):
        memory_limit_gib("0=2048")
