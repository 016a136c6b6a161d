"""The small API as a running server, and clients that misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from tests.app.http.small_app import run, token
from tests.support.forked import FORKS
from tests.support.patience import patience, until


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


class Client:
    """One raw connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience())
        self._rest = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def pour(self, data: bytes) -> int:
        """Send until the server will not take any more; how much it took."""
        view, sent = memoryview(data), 0
        try:
            while sent < len(data):
                sent += self.socket.send(view[sent : sent + 65536])
        except (BrokenPipeError, ConnectionResetError):
            pass
        return sent

    def answer(self) -> Answer:
        """The next response; a status of 0 means that the connection ended without one."""
        try:
            while b"\r\n\r\n" not in self._rest:
                data = self.socket.recv(65536)
                if not data:
                    return Answer(0, {}, self._rest)
                self._rest += data
        except ConnectionResetError:
            return Answer(0, {}, b"")
        head, _, rest = self._rest.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(headers.get("content-length", 0))
        while len(rest) < length:
            data = self.socket.recv(65536)
            if not data:
                break
            rest += data
        self._rest = rest[length:]
        return Answer(int(lines[0].split()[1]), headers, rest[:length])

    def ended(self) -> bool:
        """Whether the server has ended the connection; waits for it."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


@dataclass(slots=True)
class Running:
    """A server process and what it said."""

    process: ForkServerProcess
    port: int
    log_path: Path
    said: Connection  # by the process, after its port

    def client(self) -> Client:
        return Client(self.port)

    def ask(
        self, method: str, path: str, who: str | None = "admin", body: bytes | None = None, **headers: str
    ) -> Answer:
        client = self.client()
        client.pour(request(method, path, who, body, **headers))
        answer = client.answer()
        client.close()
        return answer

    def until_told(self, line: str) -> None:
        """Wait for a line of /metrics."""
        until(lambda: line in self.metrics(), self.metrics)

    def until_unsent(self, least_bytes: float) -> None:
        """Wait until at least so many bytes of answers are unsent."""
        name = "\ngpuwright_unsent_answer_bytes "
        until(lambda: float(self.metrics().split(name)[1].split("\n")[0]) >= least_bytes, self.metrics)

    def metrics(self) -> str:
        return self.ask("GET", "/metrics", "viewer").body.decode()

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        return self.ended()

    def ended(self) -> int | None:
        """The exit code, once it has one."""
        self.process.join(patience())
        return self.process.exitcode

    def log(self) -> list[dict[str, Any]]:
        """The whole lines so far: the server may be in the middle of its next one."""
        whole, _, _ = self.log_path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def request(method: str, path: str, who: str | None = "admin", body: bytes | None = None, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x"]
    if who:
        lines.append(f"Authorization: Bearer {token(who)}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers with the given settings, limits and capacity, and stops them at the end."""
    yield from _starter()


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """One server for every test that needs no settings of its own."""
    starter = _starter()
    begin = next(starter)
    yield begin(
        settings={"rate_per_second": 1e6, "rate_burst": 1_000_000},
        limits={"linger_seconds": 0.2},
        capacity={"peer_failures_burst": 1e6, "peer_per_second": 1e6, "peer_burst": 1e6},
    )
    next(starter, None)


def _starter() -> Iterator[Start]:
    started: list[Running] = []

    def begin(**options: Any) -> Running:
        log_path = Path(tempfile.mkstemp(suffix=".log")[1])
        ours, theirs = FORKS.Pipe()
        process = FORKS.Process(target=run, args=(options, str(log_path), theirs))
        process.start()
        theirs.close()
        try:
            assert ours.poll(patience())
            port = ours.recv()
        except EOFError:
            raise AssertionError(log_path.read_text()) from None
        running = Running(process, port, log_path, ours)
        started.append(running)
        return running

    yield begin
    for running in started:
        if running.process.is_alive():
            running.process.kill()
            running.process.join()
        running.said.close()
        running.log_path.unlink()
