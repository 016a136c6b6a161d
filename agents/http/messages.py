"""Reads requests from bytes as they arrive, limited in size, and formats answers.

A body needs Content-Length; chunked ones are refused (411), which leaves no room for disagreement with a proxy.
"""

from __future__ import annotations

import re
from _operator import _compare_digest  # what `hmac` offers, without the 4 MB of OpenSSL that it imports
from collections.abc import Callable
from dataclasses import dataclass

MOST_HEADER_BYTES = 16 * 1024
JSON = "application/json"
CLOSE = "Connection: close\r\n"
REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 411: "Length Required",
    413: "Content Too Large", 422: "Unprocessable Content", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


class BadRequest(Exception):
    """A request that cannot be read; its connection ends with the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(slots=True)
class HttpRequest:
    """One request; complete once its body is."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes = b""
    is_chunkable: bool = True  # HTTP/1.1
    keep: bool = True  # the connection, for the next request

    def may_control(self, token: str) -> bool:
        """Returns whether the request bears this token, or none is set."""
        # Takes as long for a nearly right token as for any other.
        return not token or _compare_digest(self.headers.get(b"authorization", b""), f"Bearer {token}".encode())


class RequestReader:
    """Keeps what has arrived on a connection and splits it into requests."""

    __slots__ = ("_begun", "_most_body_bytes", "_needed", "buffer")

    def __init__(self, most_body_bytes: int) -> None:
        self.buffer = bytearray()
        self._most_body_bytes = most_body_bytes
        self._begun: HttpRequest | None = None  # its header is complete
        self._needed = 0  # bytes of its body

    @property
    def is_partial(self) -> bool:
        return bool(self.buffer) or self._begun is not None

    def clear(self) -> None:
        self.buffer.clear()
        self._begun = None

    def read(self, say: Callable[[bytes], object]) -> HttpRequest | None:
        """Returns the next request once it is complete; `say` sends 100 to a client that waits for it."""
        if self._begun is None:
            end = self.buffer.find(b"\r\n\r\n")
            if (len(self.buffer) if end < 0 else end) > MOST_HEADER_BYTES:
                raise BadRequest(431, "the header is too long")
            if end < 0:
                return None
            request = _parse_head(bytes(self.buffer[:end]))
            self._needed = self._body_length(request.headers)
            del self.buffer[: end + 4]
            self._begun = request
            if request.headers.get(b"expect", b"").lower() == b"100-continue" and self._needed > len(self.buffer):
                say(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = self._begun
        if len(self.buffer) < self._needed:
            return None
        request.body = bytes(self.buffer[: self._needed])
        del self.buffer[: self._needed]
        self._begun = None
        return request

    def _body_length(self, headers: dict[bytes, bytes]) -> int:
        if b"transfer-encoding" in headers:
            raise BadRequest(411, "Content-Length is required")
        length = headers.get(b"content-length", b"0")
        if not re.fullmatch(rb"[0-9]{1,18}", length):
            raise BadRequest(400, "invalid Content-Length")
        if int(length) > self._most_body_bytes:
            raise BadRequest(413, f"a request body has at most {self._most_body_bytes} bytes")
        return int(length)


def _parse_head(head: bytes) -> HttpRequest:
    first, *lines = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise BadRequest(400, "malformed request line; HTTP/1.1 is required")
    headers: dict[bytes, bytes] = {}
    for text in lines:
        header = _HEADER.fullmatch(text)
        if header is None:
            raise BadRequest(400, "malformed header line")
        name = header[1].lower()
        if name in headers and name in (b"content-length", b"transfer-encoding", b"host"):
            raise BadRequest(400, "duplicate header")
        headers[name] = header[2].strip()
    connection = headers.get(b"connection", b"").lower()
    is_chunkable = line[3] == b"1"
    keep = b"close" not in connection and (is_chunkable or b"keep-alive" in connection)
    return HttpRequest(line[1].decode(), line[2].decode(), headers, b"", is_chunkable, keep)


def format_answer(
    status: int, body: bytes, kind: str = JSON, more: str = "", *, close: bool, is_head: bool = False
) -> bytes:
    """Formats a whole answer; that to HEAD has the length of a body and no body."""
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}{CLOSE if close else ''}\r\n".encode() + (b"" if is_head else body)
