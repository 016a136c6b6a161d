"""Inputs made to hurt are refused early, quickly and small."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from app.manifests.faults import ManifestsRefused
from app.manifests.reader import API, read

BOMB = b"a0: &a0 [x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 40)
)


@pytest.mark.parametrize(
    ("data", "media"),
    [
        (b" " * 100_000_000, "yaml"),
        (b"[" * 200_000, "yaml"),
        (b"[" * 200_000, "json"),
        (b"[" * 200_000 + b"]" * 200_000, "json"),
        (b'{"a":' * 200_000, "json"),
        (b"- " * 200_000, "yaml"),
        (b"? " * 200_000, "yaml"),
        (BOMB, "yaml"),
        (b"[" + b"[]," * 1_300_000 + b"[]]", "yaml"),
        (b"[" + b"[]," * 1_300_000 + b"[]]", "json"),
        (b"[" + b"1," * 600_000 + b"1]", "json"),
        (b"---\n" * 600_000, "yaml"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[:12]),
)
def test_what_is_too_much_is_refused_before_it_is_built(data: bytes, media: Any) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ManifestsRefused) as refused:
        read(data, media, API)
    assert refused.value.too_large
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("data", "media"),
    [
        (b'"' + b'\\"' * 4_000_000, "json"),
        (b'"\\' * 2_000_000, "json"),
        (b"\\" * 4_000_000, "json"),
        (b"]" * 4_000_000, "json"),
        (b"".join(b"%%TAG !a%d! tag:x\n" % n for n in range(100_000)) + b"---\na", "yaml"),
        (b"&a " * 1_000_000, "yaml"),
        (b"'" * 4_000_001, "yaml"),
        (b"a: |\n" + b" \n" * 1_000_000 + b"\tx: [", "yaml"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[:12]),
)
def test_no_text_takes_time_out_of_proportion(data: bytes, media: Any) -> None:
    with pytest.raises(ManifestsRefused):
        read(data, media, API)
