"""The one file that a sender sends: a few plain files and the checksum of each, packed the same way every time."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

SUMS = "SHA256SUMS"
RECORDING = "recording.json"
EVIDENCE = "evidence.md"
NAMES = frozenset({SUMS, RECORDING, EVIDENCE})
MOST_PACKED_BYTES = 2**20
MOST_BYTES = 8 * 2**20
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BadArchive(Exception):
    """The archive is not as the kit wrote it; nothing of it may be kept."""


def write_archive(path: Path, files: Mapping[str, bytes]) -> str:
    """Writes the files, their checksums, and beside them the archive's own checksum, which is returned."""
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted({**files, SUMS: sums.encode()}.items()):
            member = tarfile.TarInfo(name)  # without owner and time
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    packed = gzip.compress(unpacked.getvalue(), mtime=0)
    path.write_bytes(packed)
    whole = hashlib.sha256(packed).hexdigest()
    name_checksum(path).write_text(f"{whole}  {path.name}\n")
    return whole


def name_checksum(path: Path) -> Path:
    """Returns the file that holds the archive's own checksum."""
    return path.with_name(f"{path.name}.sha256")


def read_archive(path: Path, sha256: str = "") -> tuple[str, dict[str, bytes]]:
    """Returns the archive's checksum and files, all of which were checked. Raises BadArchive, which names the fault."""
    expected = sha256.lower() or _read_sum(path)
    if not _SHA256.fullmatch(expected):
        raise BadArchive(f"the checksum {expected!r} is not a SHA-256: 64 hexadecimal digits")
    with path.open("rb") as file:
        packed = file.read(MOST_PACKED_BYTES + 1)
    if len(packed) > MOST_PACKED_BYTES:
        raise BadArchive(f"{path.name} has more than {MOST_PACKED_BYTES} bytes")
    whole = hashlib.sha256(packed).hexdigest()
    if whole != expected:
        raise BadArchive(f"{path.name} has the checksum {whole}, not {expected}")
    files = _unpack(packed)
    _check_sums(files)
    return whole, files


def _read_sum(path: Path) -> str:
    try:
        return (name_checksum(path).read_text().split() or [""])[0]
    except OSError as error:
        raise BadArchive(f"{name_checksum(path).name} is not there: give the checksum by --sha256") from error


def _unpack(packed: bytes) -> dict[str, bytes]:
    """Returns the archive's files. They are read in memory, never written where their names lead."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            unpacked = stream.read(MOST_BYTES + 1)
        if len(unpacked) > MOST_BYTES:
            raise BadArchive(f"it unpacks to more than {MOST_BYTES} bytes")
        files: dict[str, bytes] = {}
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as tar:
            for member in tar:
                _check_member(member, files)
                content = tar.extractfile(member)
                assert content is not None  # it is a file
                files[member.name] = content.read()
        return files
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise BadArchive(f"it cannot be unpacked: {error}") from error


def _check_member(member: tarfile.TarInfo, files: Mapping[str, bytes]) -> None:
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise BadArchive(f"{member.name!r} leads out of the archive")
    if not member.isreg() or member.issparse():
        raise BadArchive(f"{member.name!r} is not a plain file")
    if member.name not in NAMES:
        raise BadArchive(f"{member.name!r} does not belong in it: it may have {', '.join(sorted(NAMES))}")
    if member.name in files:
        raise BadArchive(f"{member.name!r} is in it twice")
    if member.size > MOST_BYTES:
        raise BadArchive(f"{member.name!r} has more than {MOST_BYTES} bytes")


def _check_sums(files: Mapping[str, bytes]) -> None:
    missing = NAMES - files.keys()
    if missing:
        raise BadArchive(f"{min(missing)!r} is missing")
    lines = files[SUMS].decode(errors="replace").splitlines()
    stated = {name: value for value, _, name in (line.partition("  ") for line in lines)}
    if len(lines) != len(stated) or stated.keys() != NAMES - {SUMS}:
        raise BadArchive(f"{SUMS} does not list just {', '.join(sorted(NAMES - {SUMS}))}")
    for name, value in stated.items():
        if hashlib.sha256(files[name]).hexdigest() != value:
            raise BadArchive(f"{name!r} does not have the checksum that {SUMS} states")
