"""Sends one HTTP request to a copy; the call never raises and always ends.

A copy is not trusted: it may accept and stay silent, send a byte a second, or answer without end. So the deadline
covers the whole exchange, and an answer has a largest size.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from agents.seams.traffic import Served
from agents.talk.scraping import read_served
from agents.templates import Filled, Probe, format_number

LOOPBACK = "127.0.0.1"
MOST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CopyReply:
    """A copy's answer; status 0 means that no whole answer came, for the reason `why`."""

    ok: bool  # 2xx
    status: int
    body: bytes = b""
    why: str = ""


class CopyPlace(NamedTuple):
    """Where a copy listens."""

    port: int
    host: str = ""  # empty: the node's own address

    def on(self, node_host: str) -> CopyPlace:
        """Returns the whole address, where `node_host` is the node's own."""
        return CopyPlace(self.port, self.host or node_host)

    def spell(self) -> str:
        """Returns host:port, as gateways and reports spell it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CopyClient(Protocol):
    """Asks copies; a runtime of tests answers without a socket."""

    def ask(self, copy: CopyPlace, probe: Probe, **values: float) -> CopyReply: ...

    def served(self, copy: CopyPlace, filled: Filled) -> Served | None: ...


class TcpCopyClient:
    """Asks copies over TCP; `host` is the node's own address."""

    def __init__(self, host: str = LOOPBACK) -> None:
        self._host = host

    def ask(self, copy: CopyPlace, probe: Probe, **values: float) -> CopyReply:
        """Sends the probe, with placeholders such as `{batch}` filled in from `values`."""
        path, body = _fill(probe.path, values), _fill(probe.body, values)
        address = (copy.on(self._host).host, probe.port or copy.port)
        try:
            if probe.method == "CONNECT":
                socket.create_connection(address, timeout=probe.seconds).close()
                return CopyReply(True, 200)
            return _exchange(address, probe.method, path, body.encode(), time.monotonic() + probe.seconds, probe.token)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return CopyReply(False, 0, why=f"{type(error).__name__}: {error}"[:200])

    def served(self, copy: CopyPlace, filled: Filled) -> Served | None:
        """Returns what the copy reports to have served; None without a metrics endpoint or an answer."""
        if filled.metrics is None:
            return None
        reply = self.ask(copy, filled.metrics)
        return read_served(filled.metrics_kind, reply.body) if reply.ok else None


def _fill(text: str, values: dict[str, float]) -> str:
    def word(found: re.Match[str]) -> str:
        value = values.get(found[1])
        return found[0] if value is None else format_number(value)

    return re.sub(r"\{(\w+)\}", word, text) if values else text


def _exchange(address: tuple[str, int], method: str, path: str, body: bytes, deadline: float, token: str) -> CopyReply:
    host, port = address
    with socket.create_connection(address, timeout=_remaining(deadline)) as connection:
        named = f"[{host}]" if ":" in host else host
        lines = [f"{method} {path} HTTP/1.1", f"Host: {named}:{port}", "Connection: close", "Accept: */*"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        connection.settimeout(_remaining(deadline))
        connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        source: Any = _Deadlined(connection, deadline)  # HTTPResponse uses nothing of a socket but makefile
        with http.client.HTTPResponse(source, method=method) as response:
            response.begin()
            answer = response.read(MOST_BYTES + 1)
            if len(answer) > MOST_BYTES:
                return CopyReply(False, 0, why=f"more than {MOST_BYTES} bytes")
            if response.length:
                return CopyReply(False, 0, why="the answer ended early")
            return CopyReply(200 <= response.status < 300, response.status, answer)


def _remaining(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("no complete answer in time")
    return seconds


class _Deadlined(io.RawIOBase):
    """Reads from a socket until a deadline, however many pieces the answer comes in."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, 65536)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_remaining(self._deadline))
        return self._connection.recv_into(buffer)
