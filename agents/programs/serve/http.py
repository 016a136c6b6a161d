"""HTTP/1.1 for one connection: keep-alive, one request at a time, limited in size and time.

Only a slow or malformed client is cut off. A body needs Content-Length; chunked ones are refused (411), which leaves no
room for disagreement with the proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any

MOST_HEADER_BYTES = 16 * 1024
MOST_BODY_BYTES = 1024 * 1024
IDLE_SECONDS = 300.0
LINGER_SECONDS = 1.0  # time for a refused client to read its answer
REASONS = {
    100: "Continue", 200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 411: "Length Required", 413: "Content Too Large", 422: "Unprocessable Content",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}  # fmt: skip
_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


def _message(status: int, body: bytes, more: str, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


class HttpRequest:
    """One complete request."""

    __slots__ = ("body", "headers", "method", "path")

    def __init__(self, method: str, path: str, headers: dict[bytes, bytes], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body


class HttpConnection(asyncio.Protocol):
    """One client. `handle` receives each request and answers it, now or later, by `answer`.

    `request_seconds` limits the arrival of a whole request after its first byte, and the reading of an answer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handle: Callable[[HttpConnection, HttpRequest], None],
        on_lost: Callable[[HttpConnection], None],
        request_seconds: float,
    ) -> None:
        self.loop = loop
        self.handle = handle
        self.on_lost = on_lost
        self.deadline = loop.time() + IDLE_SECONDS
        self.busy = False  # a request is being answered
        self.lost = False
        self.unwelcome = False  # there is no room for it
        self.waiting: Any = None  # kept by the handler while the request is queued
        self._request_seconds = request_seconds
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._line: re.Match[bytes] | None = None  # of a request whose header is complete
        self._headers: dict[bytes, bytes] = {}
        self._length = 0
        self._head = False
        self._keep = True
        self._paused = False
        self._in_parts = False  # the answer comes in parts
        self._is_chunked = True  # as parts of HTTP/1.1; those of HTTP/1.0 end with the connection

    @property
    def partial(self) -> bool:
        """True if a request has arrived in part."""
        return not self.busy and bool(self._buffer or self._line)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.unwelcome:
            self.lost = True
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.lost:
            return  # input after a refusal is read and dropped, or the refusal would not arrive
        if not self.partial and not self.busy:
            self.deadline = self.loop.time() + self._request_seconds
        self._buffer += data
        if not self.busy:
            self._advance()
        elif len(self._buffer) > MOST_HEADER_BYTES and self._transport:
            self._transport.pause_reading()  # the next requests can wait in the kernel

    def pause_writing(self) -> None:
        self._paused = True
        self.deadline = self.loop.time() + self._request_seconds

    def resume_writing(self) -> None:
        self._paused = False
        if not self.busy:
            self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._buffer.clear()
        self.on_lost(self)

    def close(self) -> None:
        """Closes once all output is written."""
        if self._transport:
            self._transport.close()

    def close_if_idle(self) -> None:
        """Closes an idle connection once all output is written."""
        if not self.busy and not self.partial and not self.lost:
            self.lost = True
            self.close()

    def abort(self) -> None:
        """Closes at once."""
        self.lost = True
        if self._transport:
            self._transport.abort()

    def expire(self) -> None:
        """Handles a missed deadline."""
        if self._transport is None or (self.busy and not (self._in_parts and self._paused)):
            return
        if self._paused or self.lost:
            self._transport.abort()
        elif self.partial:
            self._refuse(408, "the request did not arrive completely in time")
        else:
            self.close()

    def answer(
        self, status: int, body: bytes, close: bool = False, more: str = "", kind: str = "application/json"
    ) -> None:
        """Writes the answer to the current request; then reads the next, or closes."""
        self.busy = False
        self.waiting = None
        if self._transport is None or self.lost:
            return
        close = close or not self._keep
        ends = "Connection: close\r\n" if close else ""
        message = _message(status, body, more + ends, kind)
        self._transport.write(message[: len(message) - len(body)] if self._head else message)
        self._then(close)

    def begin(self, kind: str) -> None:
        """Begins an answer that comes in parts. A client that reads none for `request_seconds` is cut off."""
        if self._transport is None or self.lost:
            return
        self._in_parts = True
        self._keep = self._keep and self._is_chunked
        framing = "Transfer-Encoding: chunked\r\n" if self._is_chunked else ""
        ends = "" if self._keep else "Connection: close\r\n"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\n{framing}{ends}\r\n"
        self._transport.write(head.encode())

    def part(self, data: bytes) -> None:
        """Writes a part of an answer that has begun."""
        if self._transport is not None and not self.lost:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    def end(self, close: bool = False) -> None:
        """Ends an answer in parts; then reads the next request, or closes."""
        self._in_parts = self.busy = False
        self.waiting = None
        if self._transport is None or self.lost:
            return
        if self._is_chunked:
            self._transport.write(b"0\r\n\r\n")
        self._then(close or not self._keep)

    def _then(self, close: bool) -> None:
        assert self._transport is not None
        if close:
            self.lost = True
            self.deadline = self.loop.time() + self._request_seconds
            self.close()
        elif not self._paused:
            self._next()

    def _next(self) -> None:
        now = self.loop.time()
        self.deadline = now + (self._request_seconds if self._buffer else IDLE_SECONDS)
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()
            if self._buffer:
                self.loop.call_soon(self._advance)

    def _refuse(self, status: int, why: str) -> None:
        self._buffer.clear()
        self._line = None
        if self._transport and not self.lost:
            self.lost = True
            self.deadline = self.loop.time() + LINGER_SECONDS
            self._transport.write(_message(status, b'{"error": "%s"}' % why.encode(), "Connection: close\r\n"))
            with contextlib.suppress(OSError):  # it has already gone
                self._transport.write_eof()

    def _advance(self) -> None:
        if self.busy or self.lost or self._paused:
            return
        if self._line is None and not self._begin():
            return
        if len(self._buffer) < self._length:
            return
        assert self._line is not None
        method, path, _ = self._line.groups()
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._line = None
        self.busy = True
        self.handle(self, HttpRequest(method.decode(), path.decode(), self._headers, body))

    def _begin(self) -> bool:
        """Parses a complete header; False: not complete yet, or refused."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MOST_HEADER_BYTES:
            if len(self._buffer) > MOST_HEADER_BYTES:
                self._refuse(431, "the header is too long")
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        try:
            line, headers = _parse_head(head)
            self._length = _body_length(headers)
        except _BadRequest as bad:
            self._refuse(bad.status, bad.why)
            return False
        connection = headers.get(b"connection", b"").lower()
        self._keep = b"close" not in connection and (line[3] == b"1" or b"keep-alive" in connection)
        self._head = line[1] == b"HEAD"
        self._is_chunked = line[3] == b"1"
        self._line, self._headers = line, headers
        awaited = headers.get(b"expect", b"").lower() == b"100-continue" and self._length > len(self._buffer)
        if awaited and self._transport:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True


class _BadRequest(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def _parse_head(head: bytes) -> tuple[re.Match[bytes], dict[bytes, bytes]]:
    first, *lines = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise _BadRequest(400, "malformed request line; HTTP/1.1 is required")
    headers: dict[bytes, bytes] = {}
    for text in lines:
        header = _HEADER.fullmatch(text)
        if header is None:
            raise _BadRequest(400, "malformed header line")
        name = header[1].lower()
        if name in headers and name in (b"content-length", b"transfer-encoding", b"host"):
            raise _BadRequest(400, "duplicate header")
        headers[name] = header[2].strip()
    return line, headers


def _body_length(headers: dict[bytes, bytes]) -> int:
    if b"transfer-encoding" in headers:
        raise _BadRequest(411, "Content-Length is required")
    length = headers.get(b"content-length", b"0")
    if not re.fullmatch(rb"[0-9]{1,18}", length):
        raise _BadRequest(400, "invalid Content-Length")
    if int(length) > MOST_BODY_BYTES:
        raise _BadRequest(413, "the body is too long")
    return int(length)
