"""Reads the headers of a request that the gate needs, and refuses what no route should have to handle."""

from __future__ import annotations

from starlette.types import Scope

from app.http import metrics
from app.problem import HttpProblem


class Head:
    """The headers that matter here, picked in one pass."""

    __slots__ = ("authorization", "encoding", "forwarded", "has_body", "length", "request_id", "traceparent")

    def __init__(self, scope: Scope) -> None:
        self.authorization: str | None = None
        self.encoding: bytes = b""
        self.forwarded = ""
        self.length: int | None = None
        self.has_body = False
        self.request_id: str | None = None
        self.traceparent: str | None = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                self.authorization = value.decode("latin-1")
            elif name == b"content-length":
                # anything but a plain number counts as endless, and is refused by its size
                self.length = int(value) if value.isdigit() and len(value) < 16 else 10**16
                self.has_body = self.has_body or self.length > 0
            elif name == b"transfer-encoding":
                self.has_body = True
            elif name == b"content-encoding":
                self.encoding = value.strip().lower()
            elif name == b"x-forwarded-for":
                self.forwarded = ",".join(filter(None, (self.forwarded, value.decode("latin-1"))))
            elif name == b"x-request-id":
                self.request_id = value.decode("latin-1")
            elif name == b"traceparent":
                self.traceparent = value.decode("latin-1")


def check_head(scope: Scope, head: Head) -> None:
    """Refuses heads that no route should have to handle."""
    if head.encoding not in (b"", b"identity"):
        metrics.REFUSED_BODIES.labels("encoded").inc()
        raise HttpProblem(
            "unsupported-media-type",
            "compressed bodies are not supported; send the body without Content-Encoding",
            headers={"Accept-Encoding": "identity"},
        )
    if not scope["path"].isprintable() or b"%00" in scope["query_string"]:
        raise HttpProblem("bad-request", "the path or query contains control characters")
