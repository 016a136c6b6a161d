"""The compute stub as a CUDA client: its share slows it, its memory is claimed, and it ends with its context."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.devices.simulated.client import SOCKET
from agents.devices.simulated.refusals import OUT_OF_MEMORY, TERMINATED
from tests.agents.programs.serve.running import serving
from tests.support.patience import patience

PROFILE = {"latencyMs": {"4": {"10": 120, "100": 2}}, "memoryGib": {"1": 1.0, "4": 1.75}, "startSeconds": 0}


class Daemon:
    """An MPS daemon in the test's own hand."""

    def __init__(self, folder: Path) -> None:
        self.environment = {
            "CUDA_VISIBLE_DEVICES": "GPU-1",
            "CUDA_MPS_PIPE_DIRECTORY": str(folder),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M",
        }
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(folder / SOCKET))
        self.listener.listen(8)
        self.listener.settimeout(patience())

    def meet(self, answer: dict[str, Any]) -> tuple[socket.socket, Any, dict[str, Any]]:
        """The connection, its lines, and the client's first message."""
        connection, _ = self.listener.accept()
        connection.settimeout(patience())
        lines = connection.makefile()
        hello = json.loads(lines.readline())
        connection.sendall(json.dumps(answer).encode() + b"\n")
        return connection, lines, hello


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.listener.close()


@pytest.fixture
def profile(tmp_path: Path) -> str:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(PROFILE))
    return str(file)


def test_it_claims_the_memory_of_its_largest_batch_and_runs_on_its_share(daemon: Daemon, profile: str) -> None:
    with serving("--profile", profile, "--max-batch", "4", environment=daemon.environment, ready=False) as copy:
        assert copy.ask("GET", "/healthz").status == 503  # the daemon has not answered yet
        connection, lines, hello = daemon.meet({"smCount": 8})
        assert hello == {
            "pid": copy.process.pid, "uuid": "GPU-1", "smPercent": 10.0, "memoryLimitGib": 2.0, "memoryGib": 1.75,
        }  # fmt: skip
        copy.wait_ready()
        served = copy.served()
        assert (served.sm_count, served.memory_gib) == (8, 1.75)
        assert copy.infer().status == 200
        busy = copy.served().busy_seconds
        assert busy is not None and busy >= 0.12  # a tenth of the SMs: sixty times as long
        assert 0 < json.loads(lines.readline())["busy"] <= 1
        connection.sendall(b"{}\n")
        assert json.loads(lines.readline()) == {"busy": 0.0}
        connection.close()


def test_without_room_it_does_not_start_and_says_why(daemon: Daemon, profile: str) -> None:
    with serving("--profile", profile, environment=daemon.environment, ready=False) as copy:
        daemon.meet({"error": OUT_OF_MEMORY, "message": "1 GiB is more than is free"})[0].close()
        assert copy.exit_code() == 1
        assert "cannot load: CUDA error 2: 1 GiB is more than is free" in "\n".join(copy.log)


def test_when_its_context_is_gone_it_ends(daemon: Daemon, profile: str) -> None:
    with serving("--profile", profile, environment=daemon.environment, ready=False) as copy:
        connection, _, _ = daemon.meet({"smCount": 8})
        copy.wait_ready()
        connection.sendall(json.dumps({"error": TERMINATED}).encode() + b"\n")
        assert copy.exit_code() == 1
        connection.close()


def test_without_a_daemon_it_runs_without_limits_as_cuda_would(tmp_path: Path) -> None:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "gone"), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}
    with serving("--latency", "1:10=3600000,100=1", environment=environment) as copy:
        assert copy.infer().status == 200  # on its share it would take an hour
        assert copy.served().sm_count is None


def test_it_can_be_drained_while_the_daemon_keeps_it_waiting(daemon: Daemon, profile: str) -> None:
    with serving("--profile", profile, environment=daemon.environment, ready=False) as copy:
        copy.process.terminate()
        assert copy.exit_code() == 0
    assert copy.log[-1].startswith("gpuwright-serve: drained after 0 requests")


def test_a_drained_client_leaves_the_daemon(daemon: Daemon, profile: str) -> None:
    with serving("--profile", profile, environment=daemon.environment, ready=False) as copy:
        connection, lines, _ = daemon.meet({"smCount": 8})
        copy.wait_ready()
        copy.ask("POST", "/v1/drain")
        assert copy.exit_code() == 0
        assert lines.readline() == ""
        connection.close()
