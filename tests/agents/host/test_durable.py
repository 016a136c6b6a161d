"""A file is replaced as a whole, and only when its content changes."""

from __future__ import annotations

from pathlib import Path

from agents.host import durable


def test_a_write_replaces_the_old_file_and_any_leftover_of_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    (tmp_path / "kept.json.new").write_text("half")
    for content in (b"first", b"second"):
        durable.write(path, content)
        assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_says_the_same_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "services.map"
    durable.write_changed(path, b"a", 0o644)
    before = path.stat()
    durable.write_changed(path, b"a", 0o644)
    assert path.stat().st_ino == before.st_ino
    durable.write_changed(path, b"b", 0o644)
    assert path.stat().st_ino != before.st_ino
    assert path.read_bytes() == b"b"
