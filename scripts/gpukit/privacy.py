"""Takes out of a recording what would identify the machine that it was made on, or its owner."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any

LEFT_OUT = (
    "Left out: names of the machine and of its user, paths, network addresses, names of processes, and the board's "
    "serial. UUIDs are replaced by numbered ones, addresses on the bus by one for all."
)
BUS = "00000000:01:00.0"
_HEX = "[0-9a-fA-F]"
_UUID = re.compile(rf"\b{_HEX}{{8}}(?:-{_HEX}{{4}}){{2,3}}(?:-{_HEX}{{1,12}})?\b")
_BUS = re.compile(rf"\b(?:{_HEX}{{4,8}}:)?{_HEX}{{2}}:{_HEX}{{2}}\.[0-7]\b")
_HARDWARE = re.compile(rf"\b{_HEX}{{2}}(?::{_HEX}{{2}}){{5}}\b")
_ADDRESS = re.compile(r"\b(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}\b")
_PATH = re.compile(r"(?<![\w.~/])~?(?:/[\w.@+~%-]+){2,}/?|(?<![\w.~/])~?/[A-Za-z_][\w.@+~%-]*/?")


def known_names() -> list[str]:
    """Returns what this machine and its user are called; a name that says nothing is none."""
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user of a container has only a number
        user = ""
    names = {host, host.partition(".")[0], user} - {"", "root", "localhost"}
    return sorted(names, key=len, reverse=True)


def hide(value: Any, names: Sequence[str]) -> Any:
    """Returns the value without what identifies; each UUID has one stand-in throughout."""
    numbers: dict[str, int] = {}

    def stand_in(found: re.Match[str]) -> str:
        number = numbers.setdefault(found[0][:8].lower(), len(numbers))
        return f"{number:08x}-0000-0000-0000-000000000000"[: len(found[0])]

    def plain(text: str) -> str:
        text = _UUID.sub(stand_in, text)
        text = _BUS.sub(BUS, _HARDWARE.sub("(address)", _ADDRESS.sub("(address)", text)))
        text = _PATH.sub("(path)", text)
        for name in names:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "(name)", text, flags=re.IGNORECASE)
        return text

    return map_text(value, plain)


def hide_commands(printed: str) -> str:
    """Returns a table of processes without the names in its last column."""
    lines = printed.splitlines(keepends=True)
    if not lines or not lines[0].rstrip().endswith("COMMAND"):
        return printed
    columns = len(lines[0].split()) - 1
    return lines[0] + "".join(" ".join([*line.split()[:columns], "command"]) + "\n" for line in lines[1:])


def map_text(value: Any, plain: Callable[[str], str]) -> Any:
    """Returns a value of JSON with each of its strings changed."""
    match value:
        case str():
            return plain(value)
        case dict():
            return {plain(str(key)): map_text(inner, plain) for key, inner in value.items()}
        case list() | tuple():
            return [map_text(inner, plain) for inner in value]
        case _:
            return value
