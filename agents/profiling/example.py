"""Asks a model server for a request that it can answer."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agents.profiling.closed_loop import LoopFailed

JSON, RAW = "application/json", "application/octet-stream"
MOST_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ExampleRequest:
    """A request that the model can answer: JSON, or the raw numbers of a sample."""

    path: str
    body: bytes
    kind: str = JSON
    method: str = "POST"

    def spell(self, host: str, port: int) -> bytes:
        """Returns the whole HTTP request as it is sent."""
        named = f"[{host}]" if ":" in host else host
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {named}:{port}", f"Content-Type: {self.kind}"]
        lines += [f"Content-Length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode("ascii") + self.body


class _Example(msgspec.Struct):
    path: str
    body: msgspec.Raw = msgspec.Raw()
    base64: bytes | None = None


def parse_example(answer: bytes) -> ExampleRequest:
    """Parses `{"path": "/v1/models/m:infer", "body": {...}}`, or raw numbers in "base64"; raises LoopFailed."""
    try:
        found = msgspec.json.decode(answer, type=_Example)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LoopFailed(f"the example request cannot be read: {error}") from error
    path, body = found.path, bytes(found.body) if found.base64 is None else found.base64
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path or len(path) > 500:
        raise LoopFailed(f"the example request has the path {ascii(path)[:80]}; allowed is a path without spaces")
    if len(body) > MOST_BODY_BYTES:
        raise LoopFailed(f"the example request has {len(body)} bytes; allowed are {MOST_BODY_BYTES}")
    if not body:
        raise LoopFailed("the example request has neither a body nor base64")
    return ExampleRequest(path, body, JSON if found.base64 is None else RAW)
