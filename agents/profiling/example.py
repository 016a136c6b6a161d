"""Asks a model server for a request that it can answer."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agents.profiling.closed_loop import LoopFailed

MOST_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ExampleRequest:
    """A request that the model can answer."""

    path: str
    body: bytes


class _Example(msgspec.Struct):
    path: str
    body: msgspec.Raw


def parse_example(answer: bytes) -> ExampleRequest:
    """Parses `{"path": "/v1/models/m:infer", "body": {...}}`; raises LoopFailed."""
    try:
        found = msgspec.json.decode(answer, type=_Example)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LoopFailed(f"the example request cannot be read: {error}") from error
    path, body = found.path, bytes(found.body)
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path or len(path) > 500:
        raise LoopFailed(f"the example request has the path {ascii(path)[:80]}; allowed is a path without spaces")
    if len(body) > MOST_BODY_BYTES:
        raise LoopFailed(f"the example request has {len(body)} bytes; allowed are {MOST_BODY_BYTES}")
    return ExampleRequest(path, body)
