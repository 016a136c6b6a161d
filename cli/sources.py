"""Files named with -f, read as text for the server, which alone judges what is in them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from cli.exits import Failed
from cli.talk.contexts import reason

SUFFIXES = {".yaml", ".yml", ".json"}
LIMIT_BYTES = 64 * 2**20  # beyond any limit of the server: nothing bigger is worth reading


def read(given: Iterable[str], *, recursive: bool = False, allow_empty: bool = False) -> list[tuple[str, str]]:
    """Name and text of each file; folders, which may be empty where that is allowed, in the order of their names."""
    files: list[tuple[str, str]] = []
    stdin_read = False
    size = 0
    for word in given:
        for name, path in paths(word, recursive=recursive, allow_empty=allow_empty):
            if path is None and stdin_read:
                raise Failed("stdin (-) can be given only once")
            stdin_read = stdin_read or path is None
            text = _text(name, path)
            size += len(text)
            if size > LIMIT_BYTES:
                raise Failed(f"the files exceed {LIMIT_BYTES >> 20} MB together; apply fewer at a time")
            files.append((name, text))
    return files


def paths(word: str, *, recursive: bool, allow_empty: bool = False) -> Iterator[tuple[str, Path | None]]:
    """Name and path of each file that a word of -f means; stdin has no path."""
    if word == "-":
        yield "stdin", None
        return
    if not word:
        raise Failed("-f names no file: it is empty")
    if word.startswith(("http://", "https://")):
        raise Failed(f"{word} is a URL, and files are read: curl -fsSL {word} | gpuwright ... -f -")
    path = Path(word)
    if not is_folder(path):
        yield word, path
        return
    found = sorted(
        entry
        for entry in (path.rglob("*") if recursive else path.iterdir())
        if entry.suffix in SUFFIXES and entry.is_file()
    )
    if not found and not allow_empty:
        deeper = "" if recursive else " (-R goes into folders below it)"
        raise Failed(f"the folder {word} has no .yaml, .yml or .json file{deeper}")
    for entry in found:
        yield str(entry), entry


def is_folder(path: Path) -> bool:
    """Returns whether this is a folder; a name that is too long is none, and opening it says so."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _text(name: str, path: Path | None) -> str:
    try:
        if path is None:
            data = sys.stdin.buffer.read(LIMIT_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise Failed(f"cannot read {name}: {reason(error)}") from None
    if len(data) > LIMIT_BYTES:
        raise Failed(f"{name} is over {LIMIT_BYTES >> 20} MB; split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise Failed(f"{name} is not UTF-8: {byte}; save it as UTF-8") from None
