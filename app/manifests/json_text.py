"""Reads JSON text into values; counts its size and depth on the text before anything is built."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import accumulate
from typing import NoReturn

from app.manifests.faults import ManifestFault, ManifestsRefused, escape, quote
from app.manifests.limits import InputLimits
from app.manifests.model import JSON

# Possessive, and satisfied without a closing quote: no text makes it read a character twice.
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
STRING_OR_END = re.compile(r'"(?:[^"\\]++|\\.)*+"?|\}', re.DOTALL)
STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[-+.0-9eE]{20,}+', re.DOTALL)
BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
ODD_ESCAPE = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")


def load(text: str, limits: InputLimits, source: str) -> tuple[JSON, int]:
    """Returns the value of the text and the number of values in it; refuses what is not JSON or too large."""
    data = text.encode()
    bare = STRING.sub(b'"', data)  # the rest: structure and numbers
    counted = _measure(bare, limits, source)
    if re.search(rb"[-+.0-9eE]{%d}" % (limits.max_number_characters + 1), bare):
        raise ManifestsRefused([_long_number(text, limits, source)])
    try:
        value: JSON = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_finite if re.search(rb"[eE][-+]?[0-9]{3}", bare) else None,
        )
    except json.JSONDecodeError as error:
        place = f"{source}:{error.lineno}:{error.colno}"
        raise ManifestsRefused(
            [ManifestFault(place, "", f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}")]
        ) from None
    except _Unwanted as error:
        raise ManifestsRefused([error.fault(text, source)]) from None
    if ODD_ESCAPE.search(text):
        _check_texts(value, source)
    return value, counted


def _measure(bare: bytes, limits: InputLimits, source: str) -> int:
    structure = bare.translate(None, b" \t\r\n")
    empty = structure.count(b"[]") + structure.count(b"{}")
    opened = structure.count(b"[") + structure.count(b"{")
    counted = 1 + structure.count(b",") + opened - empty
    if counted > limits.max_values:
        raise limits.too_many(source)
    # More closing than opening brackets is a syntax error, which is found elsewhere.
    brackets = structure.translate(BRACKETS, NOT_BRACKETS)[: 2 * opened]
    if opened and max(accumulate(memoryview(brackets).cast("b"))) > limits.max_depth:
        raise limits.too_deep(source)
    return counted


class _Unwanted(Exception):
    """JSON that Python reads and gpuwright refuses."""

    def __init__(self, message: str, allowed: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.allowed = allowed
        self.key = key

    def fault(self, text: str, source: str) -> ManifestFault:
        place = source if self.key is None else _place(text, _last_key(text, self.key), source)
        return ManifestFault(place, "", self.message, self.allowed, escape(self.key) if self.key is not None else None)


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    built = dict(pairs)
    if len(built) != len(pairs):
        earlier: set[str] = set()
        twice = next(key for key, _ in pairs if key in earlier or earlier.add(key))  # type: ignore[func-returns-value]
        raise _Unwanted(f"the key {quote(twice)} appears twice in one object", "each key once", key=twice)
    return built


def _constant(name: str) -> NoReturn:
    raise _Unwanted(f"{name} is not a finite number", "a finite number")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Unwanted(f"the number {digits} is too large", "a finite number")
    return number


def _long_number(text: str, limits: InputLimits, source: str) -> ManifestFault:
    most = limits.max_number_characters
    for found in STRING_OR_NUMBER.finditer(text):
        if found[0][0] != '"' and len(found[0]) > most:
            message = f"the number {found[0][:20]}... has {len(found[0])} characters"
            return ManifestFault(_place(text, found.start(), source), "", message, f"at most {most} characters")
    return ManifestFault(source, "", f"a number has more than {most} characters", f"at most {most} characters")


def _last_key(text: str, key: str) -> int:
    """Finds the second occurrence of the key, in the first object to end that contains it twice."""
    ended = 0

    def count(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
        nonlocal ended
        ended += 1
        return _object(pairs)

    with suppress(_Unwanted):
        json.loads(text, object_pairs_hook=count, parse_constant=float)
    end = len(text)
    for found in STRING_OR_END.finditer(text):
        if found[0] == "}":
            ended -= 1
            if ended == 0:
                end = found.start()
                break
    written = text.rfind(json.dumps(key, ensure_ascii=False), 0, end)
    return written if written >= 0 else end


def _check_texts(value: JSON, source: str) -> None:
    """Refuses NUL, which cannot be stored, and half of a surrogate pair, which cannot be sent either."""
    waiting: list[JSON] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str):
            if "\0" in item:
                raise ManifestsRefused(
                    [ManifestFault(source, "", "a string contains the character NUL", value=escape(item))]
                )
            if not item.isascii() and any("\ud800" <= character <= "\udfff" for character in item):
                message = "a string contains half of a surrogate pair"
                raise ManifestsRefused([ManifestFault(source, "", message, "whole characters", value=escape(item))])


def _place(text: str, offset: int, source: str) -> str:
    line = text.count("\n", 0, offset) + 1
    return f"{source}:{line}:{offset - text.rfind(chr(10), 0, offset)}"
