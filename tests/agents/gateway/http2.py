"""One request over HTTP/2, as a client sends it that knows that the server understands it."""

from __future__ import annotations

import socket

from tests.support.patience import patience

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RESET, SETTINGS, GO_AWAY = 1, 3, 4, 7
END_STREAM_AND_HEADERS = 5
MOST_BYTES = 200  # of a path; a longer text has a longer head


def ask_http2(port: int, method: str, path: str, scheme: str = "http", authority: str = "x") -> bool:
    """Sends a request; returns whether it was answered, well or not, once it is or is refused as malformed."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience()) as connection:
        connection.sendall(_request(method, path, scheme, authority))
        with connection.makefile("rb") as stream:
            while head := stream.read(9):
                stream.read(int.from_bytes(head[:3]))
                if head[3] in (HEADERS, RESET, GO_AWAY):
                    return head[3] == HEADERS
    return False


def _request(method: str, path: str, scheme: str, authority: str) -> bytes:
    """Returns the preface, empty settings and one request without a body."""
    fields = ((":method", method), (":scheme", scheme), (":authority", authority), (":path", path))
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields)
    return PREFACE + _frame(SETTINGS, 0, 0, b"") + _frame(HEADERS, END_STREAM_AND_HEADERS, 1, block)


def _text(text: str) -> bytes:
    raw = text.encode()
    long = len(raw) - 127
    return (bytes((127, long)) if long >= 0 else bytes((len(raw),))) + raw


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + content
