"""Inputs made to hurt are refused early, quickly and small."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest

from app.manifests.faults import ManifestsRefused
from app.manifests.reader import API, read

Made = Callable[[], bytes]

BOMB = b"a0: &a0 [x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 40)
)
# Made when a test asks: together they are 200 MB.
TOO_MUCH: dict[str, tuple[Made, str]] = {
    "100 MB of blanks": (lambda: b" " * 100_000_000, "yaml"),
    "lists that stay open": (lambda: b"[" * 200_000, "yaml"),
    "lists that stay open, json": (lambda: b"[" * 200_000, "json"),
    "lists in lists": (lambda: b"[" * 200_000 + b"]" * 200_000, "json"),
    "objects in objects": (lambda: b'{"a":' * 200_000, "json"),
    "items in items": (lambda: b"- " * 200_000, "yaml"),
    "keys in keys": (lambda: b"? " * 200_000, "yaml"),
    "an alias bomb": (lambda: BOMB, "yaml"),
    "empty lists": (lambda: b"[" + b"[]," * 1_300_000 + b"[]]", "yaml"),
    "empty lists, json": (lambda: b"[" + b"[]," * 1_300_000 + b"[]]", "json"),
    "numbers": (lambda: b"[" + b"1," * 600_000 + b"1]", "json"),
    "documents": (lambda: b"---\n" * 600_000, "yaml"),
}
SLOW_TO_READ: dict[str, tuple[Made, str]] = {
    "escaped quotes": (lambda: b'"' + b'\\"' * 4_000_000, "json"),
    "quotes and backslashes": (lambda: b'"\\' * 2_000_000, "json"),
    "backslashes": (lambda: b"\\" * 4_000_000, "json"),
    "closing brackets": (lambda: b"]" * 4_000_000, "json"),
    "tags": (lambda: b"".join(b"%%TAG !a%d! tag:x\n" % n for n in range(100_000)) + b"---\na", "yaml"),
    "anchors": (lambda: b"&a " * 1_000_000, "yaml"),
    "single quotes": (lambda: b"'" * 4_000_001, "yaml"),
    "blank lines": (lambda: b"a: |\n" + b" \n" * 1_000_000 + b"\tx: [", "yaml"),
}


@pytest.mark.parametrize(
    ("made", "media"),
    [
        pytest.param(*given, id=name, marks=[pytest.mark.slow] if name == "documents" else [])
        for name, given in TOO_MUCH.items()
    ],
)
def test_what_is_too_much_is_refused_before_it_is_built(made: Made, media: Any) -> None:
    data = made()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ManifestsRefused) as refused:
        read(data, media, API)
    assert refused.value.too_large
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("made", "media"), SLOW_TO_READ.values(), ids=SLOW_TO_READ)
def test_no_text_takes_time_out_of_proportion(made: Made, media: Any) -> None:
    data = made()
    with pytest.raises(ManifestsRefused):
        read(data, media, API)
