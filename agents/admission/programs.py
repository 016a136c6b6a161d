"""Opens what an admitted command runs, if only root and the agent could have put it there.

That holds for the program and, of an interpreter, for its script and for the files of its options before that. A file
that begins with `#!` is such a script, too, so that what starts is always a binary, by its checked descriptor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agents.admission.interpreters import find_scripts, list_searched
from agents.host.trusted_path import PathMissing, PathRefused, TrustedPath, find_real, open_trusted

SEARCH_PATH = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of copies
_LONGEST_FIRST_LINE_BYTES = 256  # as the kernel reads it
_ENV = "env"  # begins scripts whose interpreter is where PATH says


@dataclass(frozen=True, slots=True)
class OpenedProgram:
    """A binary by its descriptor, and the words to start it with: the first is its path."""

    descriptor: int
    argv: tuple[str, ...]


@contextmanager
def open_program(argv: Sequence[str]) -> Iterator[OpenedProgram]:
    """Opens the program of a command line, whose placeholders are filled. Raises PathRefused."""
    words = _resolve_script(argv)
    with _open_file(words[0]) as program:
        script = _read_interpreter(program)
        if not script:
            yield OpenedProgram(program.descriptor, tuple(words))
            return
        words = _resolve_script([*script, program.real, *words[1:]])
        with _open_file(words[0]) as interpreter:
            if _first_line(interpreter) is not None:
                raise PathRefused(f"{program.real}: its interpreter {words[0]} is a script itself")
            yield OpenedProgram(interpreter.descriptor, tuple(words))


def find_unsafe(argv: Sequence[str]) -> str:
    """Returns why another user could have written what the command runs, so that it must not start; empty if none."""
    try:
        with open_program(argv):
            return ""
    except PathRefused as error:
        return str(error)


@contextmanager
def _open_file(path: str) -> Iterator[TrustedPath]:
    with open_trusted(path) as found:
        if not found.is_file:
            raise PathRefused(f"{path} is not a file")
        yield found


def _resolve_script(argv: Sequence[str]) -> list[str]:
    """Returns the words with the real path of an interpreter's script; checks whatever else says where its code is."""
    for path in list_searched(argv):
        with suppress(PathMissing):  # only root and the agent can put anything there
            find_real(path)
    words, places = list(argv), find_scripts(argv)
    for place in places:
        if not words[place].startswith("/"):
            continue
        try:
            words[place] = find_real(words[place])
        except PathMissing:
            if len(places) == 1:  # of several it may be a value, as in --output FILE
                raise
    return words


def _read_interpreter(program: TrustedPath) -> list[str]:
    """Returns what the first line of a script says to start it with; nothing for a binary."""
    line = _first_line(program)
    if line is None:
        return []
    words = line.split(None, 1)  # the kernel passes the rest of the line as one argument
    if not words:
        raise PathRefused(f"{program.real}: its first line names no interpreter")
    if os.path.basename(words[0]) != _ENV:  # noqa: PTH119
        return words
    name = words[1] if len(words) == 2 else ""
    if not name or len(name.split()) != 1 or name.startswith("-") or "=" in name or "/" in name:
        raise PathRefused(f"{program.real}: its first line must name its interpreter, without options of env")
    for folder in SEARCH_PATH.split(":"):
        if os.access(f"{folder}/{name}", os.X_OK):
            return [f"{folder}/{name}"]
    raise PathRefused(f"{program.real}: its interpreter {name} is in none of {SEARCH_PATH}")


def _first_line(program: TrustedPath) -> str | None:
    """Returns what follows `#!` in the first line; None for a binary, and for what the agent may only execute."""
    try:
        descriptor = os.open(f"/proc/self/fd/{program.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return None
    try:
        start = os.read(descriptor, _LONGEST_FIRST_LINE_BYTES)
    finally:
        os.close(descriptor)
    return start[2:].split(b"\n")[0].decode(errors="replace").strip() if start.startswith(b"#!") else None
