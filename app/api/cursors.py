"""Opaque cursors of lists: where a page ended."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from app.problem import HttpProblem


def encode(*parts: str | int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def decode(cursor: str, *types: type) -> tuple[Any, ...]:
    """Returns the parts of a cursor that a list gave out; 400 for any other text."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        parts = msgspec.json.decode(raw, type=list[str | int])
    except (binascii.Error, ValueError, msgspec.DecodeError, msgspec.ValidationError):
        parts = []
    fits = len(parts) == len(types) and all(type(part) is expected for part, expected in zip(parts, types, strict=True))
    if not fits or any(isinstance(part, int) and not 0 <= part < 2**62 for part in parts):
        raise HttpProblem("bad-request", "this is not a cursor of this list; list again without it")
    if any(isinstance(part, str) and "\0" in part for part in parts):
        raise HttpProblem("bad-request", "this is not a cursor of this list; list again without it")
    return tuple(parts)
