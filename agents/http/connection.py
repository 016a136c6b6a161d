"""One client on an event loop: keep-alive, one request at a time, limited in time.

Only a slow or malformed client is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from agents.http.messages import CLOSE, JSON, MOST_HEADER_BYTES, BadRequest, HttpRequest, RequestReader, format_answer

MOST_BODY_BYTES = 1024 * 1024
IDLE_SECONDS = 300.0
LINGER_SECONDS = 1.0  # time for a refused client to read its answer


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
        self._reader = RequestReader(MOST_BODY_BYTES)
        self._transport: asyncio.Transport | None = None
        self._request = HttpRequest("GET", "/", {})  # the current one
        self._paused = False
        self._in_parts = False  # the answer comes in parts; those of HTTP/1.0 end with the connection

    @property
    def partial(self) -> bool:
        """True if a request has arrived in part."""
        return not self.busy and self._reader.is_partial

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
        self._reader.buffer += data
        if not self.busy:
            self._advance()
        elif len(self._reader.buffer) > MOST_HEADER_BYTES and self._transport:
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
        self._reader.clear()
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

    def answer(self, status: int, body: bytes, close: bool = False, more: str = "", kind: str = JSON) -> None:
        """Writes the answer to the current request; then reads the next, or closes."""
        self.busy = False
        self.waiting = None
        if self._transport is None or self.lost:
            return
        close = close or not self._request.keep
        is_head = self._request.method == "HEAD"
        self._transport.write(format_answer(status, body, kind, more, close=close, is_head=is_head))
        self._go_on(close)

    def begin(self, kind: str) -> None:
        """Begins an answer that comes in parts. A client that reads none for `request_seconds` is cut off."""
        if self._transport is None or self.lost:
            return
        self._in_parts = True
        request = self._request
        request.keep = request.keep and request.is_chunkable
        framing = "Transfer-Encoding: chunked\r\n" if request.is_chunkable else ""
        ends = "" if request.keep else CLOSE
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\n{framing}{ends}\r\n"
        self._transport.write(head.encode())

    def part(self, data: bytes) -> None:
        """Writes a part of an answer that has begun."""
        if self._transport is not None and not self.lost:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._request.is_chunkable else data)

    def end(self, close: bool = False) -> None:
        """Ends an answer in parts; then reads the next request, or closes."""
        self._in_parts = self.busy = False
        self.waiting = None
        if self._transport is None or self.lost:
            return
        if self._request.is_chunkable:
            self._transport.write(b"0\r\n\r\n")
        self._go_on(close or not self._request.keep)

    def _go_on(self, close: bool) -> None:
        assert self._transport is not None
        if close:
            self.lost = True
            self.deadline = self.loop.time() + self._request_seconds
            self.close()
        elif not self._paused:
            self._next()

    def _next(self) -> None:
        now = self.loop.time()
        self.deadline = now + (self._request_seconds if self._reader.buffer else IDLE_SECONDS)
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()
            if self._reader.buffer:
                self.loop.call_soon(self._advance)

    def _refuse(self, status: int, why: str) -> None:
        self._reader.clear()
        if self._transport and not self.lost:
            self.lost = True
            self.deadline = self.loop.time() + LINGER_SECONDS
            body = b'{"error": "%s"}' % why.encode()
            self._transport.write(format_answer(status, body, close=True))
            with contextlib.suppress(OSError):  # it has already gone
                self._transport.write_eof()

    def _advance(self) -> None:
        if self.busy or self.lost or self._paused or self._transport is None:
            return
        try:
            request = self._reader.read(self._transport.write)
        except BadRequest as bad:
            self._refuse(bad.status, bad.why)
            return
        if request is not None:
            self.busy = True
            self._request = request
            self.handle(self, request)
