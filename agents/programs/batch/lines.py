"""The requests of a batch: the lines of a JSONL file, or of all `*.jsonl` files of a folder, numbered in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST_LINE_BYTES = 16 << 20


class WrongRequests(Exception):
    """The requests are not what was declared, or have changed since the first answer."""


@dataclass(frozen=True, slots=True)
class RequestLine:
    """One request: its number over all files, from 0, and its body."""

    number: int
    body: bytes


def request_files(path: Path) -> list[Path]:
    """Returns the files of a batch in the order of their names."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise WrongRequests(f"{path} has no file that ends in .jsonl")
    for file in files:
        real = file.resolve()
        if file != path and not real.is_relative_to(path.resolve()):
            raise WrongRequests(f"{file} is a link to {real}, which is outside the folder; copy it here")
        if not real.is_file():
            raise WrongRequests(f"{file} is not a file" if real.exists() else f"{file} does not exist")
    return files


def read_lines(path: Path) -> Iterator[RequestLine]:
    """Yields the requests; empty lines are none, and a last line needs no line feed."""
    number = 0
    for file in request_files(path):
        with file.open("rb") as opened:
            # Never more than one request in memory, also of a file without line feeds.
            for line in iter(lambda: opened.readline(LONGEST_LINE_BYTES + 2), b""):
                body = line.strip()
                if len(body) > LONGEST_LINE_BYTES:
                    raise WrongRequests(f"{file}: line {number + 1} has more than {LONGEST_LINE_BYTES} bytes")
                if body:
                    yield RequestLine(number, body)
                    number += 1


def survey(path: Path) -> tuple[int, str]:
    """Returns how many requests there are, and a fingerprint of all of them."""
    digest, count = hashlib.blake2b(digest_size=16), 0
    for line in read_lines(path):
        digest.update(line.body + b"\n")
        count += 1
    return count, digest.hexdigest()
