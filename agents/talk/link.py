"""Connects to the control plane: HTTP/1.1 from the standard library, one connection for each purpose.

The other side may be hostile or broken: an answer has a deadline and a largest size, and its text is made fit for a log
line, without the token that was sent.
"""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from agents.host import deadline
from agents.host.plaintext import plaintext_refusal

CONNECT_SECONDS = 10.0
SHORTEST_SECRET = 8  # anything shorter may occur in ordinary words

T = TypeVar("T")


class LinkError(Exception):
    """No answer, or one that cannot be used; the caller may retry later."""

    def __init__(self, message: str, *, status: int = 0, retry_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = retry_seconds


@dataclass(frozen=True, slots=True)
class LinkAnswer:
    """The control plane's answer to a request."""

    status: int
    body: bytes


class Link:
    """One keep-alive connection, for one thread."""

    def __init__(self, server: str, token: str = "", ca_file: str = "") -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"server {server!r} must look like https://host:8080")
        refusal = plaintext_refusal(server)
        if refusal:
            raise ValueError(refusal)
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context(cafile=ca_file or None) if parts.scheme == "https" else None
        self._headers = {"Content-Type": "application/json"}
        self._secret = token
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._open: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: bytes | None = None, seconds: float = 10.0) -> LinkAnswer:
        """Sends one request; raises LinkError unless the answer is 2xx."""
        for attempt in ("kept", "fresh"):
            was_open = self._open is not None
            try:
                status, headers, text = self._exchange(method, path, body, seconds)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A connection kept open may have been closed by the other side while we were silent.
                if was_open and attempt == "kept" and not isinstance(error, TimeoutError):
                    continue
                reason = self._loggable(f"{type(error).__name__}: {error}")
                raise LinkError(f"{self._host}:{self._port} did not answer: {reason}") from error
            if not 200 <= status < 300:
                raise LinkError(
                    f"{method} {path} was answered {status}: {self._loggable(_detail(text))}",
                    status=status,
                    retry_seconds=_seconds(headers.get("Retry-After", "")),
                )
            return LinkAnswer(status, text)
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _exchange(
        self, method: str, path: str, body: bytes | None, seconds: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        if self._open is None:
            self._open = self._connect()
        return deadline.exchange(self._open, method, path, body, self._headers, seconds)

    def _loggable(self, text: str) -> str:
        """Returns the other side's text fit for a log line: printable, and with our token removed if it is echoed."""
        loggable = deadline.printable(text)
        return loggable.replace(self._secret, "(the token)") if len(self._secret) >= SHORTEST_SECRET else loggable

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_SECONDS, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        connection.connect()
        return connection


def decode_answer(body: bytes, kind: type[T]) -> T:
    """Decodes an answer; raises LinkError if it cannot be parsed."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LinkError(deadline.printable(f"the answer cannot be parsed: {error}")[:300]) from error


class _Fault(msgspec.Struct):
    field: str = ""
    message: str = ""


class _Problem(msgspec.Struct):
    detail: str
    faults: list[_Fault] = []


def _detail(body: bytes) -> str:
    """Returns a problem document's detail and first faults, or the beginning of any other text."""
    try:
        problem = msgspec.json.decode(body, type=_Problem)
        faults = [f"; {fault.field}: {fault.message}"[:300] for fault in problem.faults[:3]]
        return problem.detail[:300] + "".join(faults)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body[:200].decode(errors="replace")


def _seconds(text: str) -> float:
    return min(float(text), 300.0) if text.isascii() and text.isdigit() else 0.0
