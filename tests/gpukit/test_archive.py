"""The archive that somebody sends: what is not as the kit wrote it is refused by name, and nothing is unpacked."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.gpukit import archive
from scripts.gpukit.archive import BadArchive, name_checksum, read_archive, write_archive

FILES = {archive.RECORDING: b"{}\n", archive.EVIDENCE: b"## A card\n"}
Members = list[tuple[tarfile.TarInfo, bytes]]


def sum_up(files: dict[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()


def make(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(content), archive.RECORDING
    return info, content


def list_all() -> Members:
    return [make(name, content) for name, content in {**FILES, archive.SUMS: sum_up(FILES)}.items()]


def pack(path: Path, members: Members) -> Path:
    """Packs what a hostile sender might, with the right checksum of the whole."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return write_with_checksum(path, stream.getvalue())


def write_with_checksum(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    name_checksum(path).write_text(f"{hashlib.sha256(content).hexdigest()}  {path.name}\n")
    return path


def test_an_archive_is_read_as_it_was_written_and_is_the_same_each_time(tmp_path: Path) -> None:
    first = write_archive(tmp_path / "a.tar.gz", FILES)
    assert write_archive(tmp_path / "b.tar.gz", FILES) == first
    found, files = read_archive(tmp_path / "a.tar.gz")
    assert found == first and files == {**FILES, archive.SUMS: sum_up(dict(sorted(FILES.items())))}
    name_checksum(tmp_path / "a.tar.gz").unlink()
    assert read_archive(tmp_path / "a.tar.gz", first.upper())[0] == first


def test_an_archive_says_nothing_of_who_packed_it_and_when(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar.gz", FILES)
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in tar} == {(0, 0, "", "", 0)}


def test_a_changed_archive_is_refused_by_the_checksum_of_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    write_archive(path, FILES)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadArchive, match=r"a\.tar\.gz has the checksum [0-9a-f]{64}, not"):
        read_archive(path)


def test_an_archive_without_a_stated_checksum_is_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar.gz", FILES)
    name_checksum(tmp_path / "a.tar.gz").unlink()
    with pytest.raises(BadArchive, match="give the checksum by --sha256"):
        read_archive(tmp_path / "a.tar.gz")
    with pytest.raises(BadArchive, match="'abc' is not a SHA-256"):
        read_archive(tmp_path / "a.tar.gz", "abc")


HOSTILE: dict[str, tuple[Callable[[], Members], str]] = {
    "a changed file": (
        lambda: [*list_all()[1:], make(archive.RECORDING, b"{ }\n")], "'recording.json' does not have the checksum",
    ),
    "a missing file": (lambda: list_all()[1:], "'recording.json' is missing"),
    "no checksums": (lambda: list_all()[:2], "'SHA256SUMS' is missing"),
    "checksums of another file": (
        lambda: [*list_all()[:2], make(archive.SUMS, sum_up({**FILES, "more": b""}))], "SHA256SUMS does not list just",
    ),
    "a checksum twice": (
        lambda: [*list_all()[:2], make(archive.SUMS, sum_up(FILES) + sum_up(FILES))], "SHA256SUMS does not list just",
    ),
    "an extra file": (lambda: [*list_all(), make("run-me.sh", b"exit")], "'run-me.sh' does not belong in it"),
    "a file twice": (lambda: [*list_all(), make(archive.EVIDENCE, b"other")], "'evidence.md' is in it twice"),
    "a path that climbs out": (lambda: [*list_all(), make("../../evidence.md", b"x")], "leads out of the archive"),
    "an absolute path": (lambda: [*list_all(), make("/tmp/evidence.md", b"x")], "leads out of the archive"),
    "a link": (lambda: [*list_all()[1:], make(archive.RECORDING, b"", tarfile.SYMTYPE)], "is not a plain file"),
    "a hard link": (lambda: [*list_all()[:1], make(archive.EVIDENCE, b"", tarfile.LNKTYPE)], "is not a plain file"),
    "a device": (lambda: [make(archive.RECORDING, b"", tarfile.CHRTYPE)], "is not a plain file"),
    "a folder": (lambda: [make(archive.RECORDING, b"", tarfile.DIRTYPE)], "is not a plain file"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_by_name(name: str, tmp_path: Path) -> None:
    members, why = HOSTILE[name]
    with pytest.raises(BadArchive, match=why):
        read_archive(pack(tmp_path / "a.tar.gz", members()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "a.tar.gz.sha256"]


def test_a_sparse_file_that_claims_more_than_it_brings_is_refused(tmp_path: Path) -> None:
    info, content = make(archive.RECORDING, b"")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**50)}
    with pytest.raises(BadArchive):
        read_archive(pack(tmp_path / "a.tar.gz", [(info, content)]))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    bomb = write_with_checksum(tmp_path / "bomb.tar.gz", gzip.compress(bytes(archive.MOST_BYTES + 1), 9))
    assert bomb.stat().st_size < archive.MOST_PACKED_BYTES
    with pytest.raises(BadArchive, match="unpacks to more than"):
        read_archive(bomb)


def test_an_archive_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match=r"large\.tar\.gz has more than"):
        read_archive(write_with_checksum(tmp_path / "large.tar.gz", bytes(archive.MOST_PACKED_BYTES + 1)))


@pytest.mark.parametrize("keeps", [0, 40, 200])
def test_half_an_archive_is_refused(keeps: int, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    write_archive(path, FILES)
    with pytest.raises(BadArchive):
        read_archive(write_with_checksum(path, path.read_bytes()[:keeps]))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"hello", gzip.compress(b"hello"), gzip.compress(bytes(1024))):
        with pytest.raises(BadArchive):
            read_archive(write_with_checksum(tmp_path / "a.tar.gz", content))
