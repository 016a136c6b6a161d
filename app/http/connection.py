"""A connection: uvicorn's HTTP/1.1 protocol, with limits on what a client may send and for how long.

uvicorn takes any `asyncio.Protocol` class as its `http` setting, but offers no hook between its parser and the
application: limits on heads, pipelining and slow clients can only be added by a subclass. Hence the pin `uvicorn<1`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Literal

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.http.floor import Floor
from app.http.malformed import MalformedRequest
from app.problem import TITLES

# If one of these comes twice in a head, two parties may read two different requests.
ONCE = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"content-type", b"authorization"}
)
PIPELINED = 8  # requests waiting behind the one being answered
PIECES = 100_000  # of a chunked body; a chunk of a single byte costs a hundred times its content


class Farewell:
    """A transport that, closed in the middle of a request, first lets the client read its answer.

    If it closed at once while the client still sends, the client's kernel would discard the answer.
    """

    def __init__(self, connection: GuardedConnection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_extra_info = transport.get_extra_info
        self.abort = transport.abort

    def write(self, data: bytes) -> None:
        self._connection.written_bytes += len(data)
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._connection.lingering_since is not None or self._transport.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self._connection.part()


class GuardedConnection(HttpToolsProtocol):
    """A connection that ends requests beyond a limit. Floor checks deadlines in sweeps, cheaper than timers."""

    def __init__(
        self,
        config: Config,
        server_state: Floor,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.floor = server_state
        self.limits = server_state.limits
        self.phase: Literal["idle", "head", "body"] = "idle"
        self.since = self.loop.time()  # when the phase began
        self.lingering_since: float | None = None
        self.stalled_since: float | None = None  # the client has taken less than it must since
        self.buffered = 0
        self.written_bytes = 0
        self._due_bytes = 0  # of those written, how many the client must have taken
        self.socket_transport: asyncio.Transport = None  # type: ignore[assignment]
        self._deaf = False  # nothing more is read from this client
        self._discard_bytes = 0
        self._head_bytes = 0
        self._chunks = 0
        self._names: set[bytes] = set()
        self._refusal: MalformedRequest | None = None

    # What the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.socket_transport = transport
        super().connection_made(Farewell(self, transport))  # type: ignore[arg-type]
        self.floor.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.floor.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._discard_bytes -= len(data)
            if self._discard_bytes < 0 and self.lingering_since is not None:
                self.socket_transport.abort()
            return
        self._unset_keepalive_if_required()
        in_head = self.phase == "head"
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered as if it had not asked to upgrade; what follows may be another protocol, so no more is read.
            self._finish_after_answer()
        except httptools.HttpParserError as error:
            refusal = self._refusal
            if refusal is None and isinstance(error.__context__, MalformedRequest):
                refusal = error.__context__
            self.refuse(refusal or MalformedRequest(400, "this is not a well-formed HTTP/1.1 request"))
        else:
            if in_head and self.phase == "head":  # a head in pieces, of which the parser may show nothing yet
                self._head_bytes += len(data)
                if self._head_bytes > self.limits.head_bytes:
                    self.refuse(self._head_too_large())

    # What the parser calls

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.phase = "head"
        self.since = self.loop.time()
        self._head_bytes = 0
        self._chunks = 0
        self._names.clear()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes > self.limits.head_bytes:
            raise self._note_refusal(self._head_too_large())
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase != "head":
            return  # nothing here reads trailers, and they must not change what was checked
        name = name.lower()
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self.limits.head_bytes or len(self.headers) >= self.limits.head_lines:
            raise self._note_refusal(self._head_too_large())
        if name in ONCE:
            if name in self._names:
                raise self._note_refusal(MalformedRequest(400, f"the header {name.decode()} is repeated"))
            self._names.add(name)
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise self._note_refusal(MalformedRequest(400, "the only supported transfer encoding is `chunked`"))
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        names = self._names
        if b"transfer-encoding" in names and (b"content-length" in names or self.parser.get_http_version() != "1.1"):
            raise self._note_refusal(
                MalformedRequest(
                    400, "Transfer-Encoding is allowed only in HTTP/1.1, and not together with Content-Length"
                )
            )
        if b"host" not in names and self.parser.get_http_version() == "1.1":
            raise self._note_refusal(MalformedRequest(400, "the Host header is missing"))
        if len(self.pipeline) >= PIPELINED:
            raise self._note_refusal(MalformedRequest(400, "too many requests are pipelined"))
        self.phase = "body"
        self.since = self.loop.time()
        self.floor.idle.pop(self, None)  # not before: a connection whose head trickles in may still be closed as idle
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._chunks += 1
        if self._chunks > PIECES:
            raise self._note_refusal(MalformedRequest(400, "the body arrives in too many small chunks"))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.phase = "idle"
        self.since = self.loop.time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.phase == "idle" and not self.pipeline:
            self.since = self.loop.time()
            self.floor.idle[self] = None

    # Endings

    def refuse(self, refusal: MalformedRequest) -> None:
        """Answers a malformed request, and ends the connection."""
        self.floor.cut(str(refusal.status))
        self._deaf = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            in_its_body = self.phase == "body"
            if not in_its_body:
                self._finish_after_answer()  # the fault lies in a later, pipelined request
                return
            if cycle.response_started or self.pipeline:
                self.socket_transport.abort()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.is_closing():
            return
        slug, title = next((slug, title) for slug, (status, title) in TITLES.items() if status == refusal.status)
        document = {
            "type": f"urn:gpuwright:problem:{slug}",
            "title": title,
            "status": refusal.status,
            "detail": refusal.detail,
        }
        body = json.dumps(document).encode()
        head = b"content-type: application/problem+json\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
        if refusal.status == 503:
            head += b"retry-after: 1\r\n"
        self.transport.write(STATUS_LINE[refusal.status] + head + b"\r\n" + body)
        self.transport.close()

    def part(self) -> None:
        """Closes at once, or once a client that is still sending has read its answer."""
        if self.phase == "idle" and not self._deaf:
            self.socket_transport.close()
            return
        self.lingering_since = self.loop.time()
        self._deaf = True
        self._discard_bytes = self.limits.linger_bytes
        if self.socket_transport.can_write_eof():
            self.socket_transport.write_eof()
        self.flow.resume_reading()

    def shutdown(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.socket_transport.close()
        else:
            self.cycle.keep_alive = False

    def check(self, now: float) -> None:
        """Ends the connection if the client has missed a deadline."""
        limits = self.limits
        if self._is_stalled(now):
            self.floor.cut("stalled-reader")
            self.socket_transport.abort()
            return
        waited = now - self.since
        answered = self.cycle is not None and self.cycle.response_complete
        if self.lingering_since is not None:
            if now - self.lingering_since > limits.linger_seconds and not self.buffered:
                self.socket_transport.abort()
        elif self.phase == "head":
            if waited > limits.head_seconds and not self.flow.read_paused:
                self.refuse(MalformedRequest(408, f"the head did not arrive within {limits.head_seconds:g} seconds"))
        elif self.phase == "body":
            if answered and waited > limits.linger_seconds + limits.head_seconds:
                self.floor.cut("slow-body")
                self.socket_transport.abort()
        elif self.cycle is None and waited > limits.head_seconds:
            self.floor.cut("silent")
            self.socket_transport.close()

    def _is_stalled(self, now: float) -> bool:
        """True when the client has read too little of a waiting answer for too long."""
        self.buffered = self.socket_transport.get_write_buffer_size()
        taken = self.written_bytes - self.buffered
        if not self.buffered:
            self.stalled_since = None
        elif self.stalled_since is None or taken >= self._due_bytes:
            self.stalled_since = now
            self._due_bytes = taken + min(self.buffered, self.limits.write_floor_bytes)
        return self.stalled_since is not None and now - self.stalled_since > self.limits.write_stall_seconds

    def _finish_after_answer(self) -> None:
        self._deaf = True
        self._discard_bytes = self.limits.linger_bytes
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _note_refusal(self, refusal: MalformedRequest) -> MalformedRequest:
        self._refusal = refusal
        return refusal

    def _head_too_large(self) -> MalformedRequest:
        limits = self.limits
        return MalformedRequest(431, f"the head is over {limits.head_bytes} bytes or {limits.head_lines} lines")
