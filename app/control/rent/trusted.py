"""Files that decide what a planner runs and calls: read only if nobody but root may write them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

MOST_FILE_BYTES = 1 << 20
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class HooksRefused(Exception):
    """The hooks cannot be used; the message says why, and what is allowed."""


def read_trusted(path: Path, what: str, owner: int) -> bytes:
    """Reads a file. Raises HooksRefused unless it is a plain one of root's that only root may write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise HooksRefused(f"{what} {path} cannot be opened: {error.strerror}") from None
    parts = ((os.fstat(descriptor), f"{what} {path}"), (path.parent.stat(), f"its folder {path.parent}"))
    with os.fdopen(descriptor, "rb") as file:
        for facts, part in parts:
            if why := find_fault(facts, owner):
                raise HooksRefused(f"{part} {why}")
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise HooksRefused(f"{what} {path} is not a plain file")
        text = file.read(MOST_FILE_BYTES + 1)
    if len(text) > MOST_FILE_BYTES:
        raise HooksRefused(f"{what} {path} is longer than {MOST_FILE_BYTES >> 20} MiB")
    return text


def check_program(program: Path, where: str, owner: int) -> None:
    """Raises HooksRefused if others may replace a program. One that is missing may come; links are followed."""
    target = program.resolve()
    for part in (target, target.parent):
        with suppress(FileNotFoundError):
            facts = part.stat()
            if why := find_fault(facts, 0 if facts.st_uid == 0 else owner):
                raise HooksRefused(f"{where}: {part} {why}")


def find_fault(facts: os.stat_result, owner: int) -> str:
    """Returns why a file or folder is not trusted; empty where it is."""
    if facts.st_uid != owner:
        return f"belongs to user {facts.st_uid}, and must belong to {'root' if owner == 0 else f'user {owner}'}"
    if facts.st_mode & OTHERS_WRITE and not (stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX):
        return f"may be written by others (mode {stat.S_IMODE(facts.st_mode):o}); run chmod go-w"
    return ""
