"""Problems as bytes: the one place that turns a refusal into a response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.http.redact import redact
from app.problem import Problem

MEDIA = b"application/problem+json"
LONGEST_INSTANCE = 512


def instance_of(scope: Mapping[str, Any]) -> str:
    """The path that was asked for, as sent: percent-encoded, shortened, without tokens that got into it."""
    raw: bytes = scope.get("raw_path") or str(scope.get("path", "")).encode()
    return redact(raw[:LONGEST_INSTANCE].decode("latin-1"))


def encoded(problem: Problem, scope: Mapping[str, Any]) -> bytes:
    """The document; ASCII with escapes, so that no control character is sent back."""
    request_id = scope.get("state", {}).get("request_id", "")
    return json.dumps(problem.body(instance_of(scope), request_id), default=str).encode()


def headers_of(problem: Problem, body: bytes, *, close: bool = False) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", MEDIA), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in problem.headers.items()]
    if close:
        headers.append((b"connection", b"close"))
    return headers
