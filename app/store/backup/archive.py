"""The format of a backup file, read once from front to back and without trust."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg

from app.manifests.model import Free

FORMAT = 1
PIECE_BYTES = 4 * 1024 * 1024
HEADER_BYTES = 16 * 1024 * 1024

DAMAGE = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    psycopg.DataError,
    psycopg.IntegrityError,
)


class BackupError(Exception):
    """The file or the database cannot be used; the message names which, why, and what to do."""


@dataclass(slots=True)
class ArchivedTable:
    """The size of a table in a backup."""

    rows: int = 0
    bytes: int = 0
    sha256: str = ""


@dataclass(slots=True)
class Contents:
    """The contents of a backup."""

    schema: str
    taken_at: str
    tables: dict[str, ArchivedTable] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())


class Pieces:
    """The data of each table in turn, as the archive is read once from front to back."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._next = archive.next()

    def of(self, table: str) -> Iterator[bytes]:
        while self._next is not None and self._next.name.rpartition(".")[0] == f"data/{table}":
            if self._next.size > 64 * PIECE_BYTES:
                raise ValueError(f"{self._next.name} is larger than any piece of a backup")
            yield read_content(self._archive, self._next)
            self._next = self._archive.next()

    def manifest(self) -> Free:
        if self._next is None or self._next.name != "manifest.json":
            raise ValueError("it ends too early" if self._next is None else f"unexpected {self._next.name}")
        return parse_json(self._archive, self._next)


def first_json(archive: tarfile.TarFile, name: str) -> Free:
    member = archive.next()
    if member is None or member.name != name:
        raise ValueError(f"it does not begin with {name}")
    return parse_json(archive, member)


def parse_json(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Free:
    if member.size > HEADER_BYTES:
        raise ValueError(f"{member.name} is too large")
    parsed = json.loads(read_content(archive, member))
    if not isinstance(parsed, dict):
        raise ValueError(f"{member.name} is not a JSON object")
    return parsed


def read_content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    opened = archive.extractfile(member)
    if opened is None:
        raise ValueError(f"{member.name} is not a file")
    content = opened.read()
    if len(content) != member.size:
        raise ValueError(f"{member.name} is cut short")
    return content


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o600
    archive.addfile(member, io.BytesIO(content))
