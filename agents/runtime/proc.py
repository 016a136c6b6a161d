"""What /proc says of a process: which one it is, what it belongs to, who descends from it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

_MOST_BYTES = 1 << 20  # an environment is longer only where somebody made it so


class ProcessInfo(NamedTuple):
    """One process at one moment. (pid, start_ticks) names it within one boot; a PID alone does not."""

    pid: int
    start_ticks: int
    session: int
    zombie: bool


def read(path: str) -> bytes:
    """A file of /proc; empty when the process is gone or not ours. Unbuffered: these are read by the hundred."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        text = part = os.read(descriptor, 65536)
        while part and len(text) < _MOST_BYTES:
            part = os.read(descriptor, 65536)
            text += part
        return text
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def see(pid: int) -> ProcessInfo | None:
    """One process; None when there is none of this PID."""
    text = read(f"/proc/{pid}/stat")
    # The program's name stands in parentheses and may itself hold spaces and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return ProcessInfo(pid, int(fields[19]), int(fields[3]), fields[0] in (b"Z", b"X"))


def own() -> Iterator[int]:
    """PIDs of this user's processes."""
    user = os.geteuid()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with suppress(OSError):
                    if entry.stat().st_uid == user:
                        yield int(entry.name)


def environment(pid: int, name: str) -> str:
    """One variable of the environment that a process was started with; empty when it has none."""
    wanted = name.encode() + b"="
    for line in read(f"/proc/{pid}/environ").split(b"\0"):
        if line.startswith(wanted):
            return line[len(wanted) :].decode(errors="replace")
    return ""


def outputs(pid: int) -> Iterator[str]:
    """The files that a process's standard output and error go to, deleted ones too."""
    for number in (1, 2):
        with suppress(OSError):
            # Not through pathlib, which keeps every part of every name it has seen.
            yield os.readlink(f"/proc/{pid}/fd/{number}").removesuffix(" (deleted)")  # noqa: PTH115


def descendants(pid: int) -> set[int]:
    """A process, its children, theirs, and so on: those whose parents live."""
    found: set[int] = set()
    left = [pid]
    while left:
        parent = left.pop()
        if parent in found:
            continue
        found.add(parent)
        with suppress(OSError), os.scandir(f"/proc/{parent}/task") as threads:
            for thread in threads:
                left.extend(map(int, read(f"{thread.path}/children").split()))
    return found


def send(pid: int, start_ticks: int, number: signal.Signals) -> bool:
    """Signal exactly the process that was started then; False, and no signal, where the PID is another's by now."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel or a sandbox without pidfd: looked at just before
        return _send_by_number(pid, start_ticks, number)
    try:
        # Looked at after the handle was taken: if it is the right one now, the handle is the right one's.
        seen = see(pid)
        if seen is None or seen.start_ticks != start_ticks:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)


def _send_by_number(pid: int, start_ticks: int, number: signal.Signals) -> bool:
    seen = see(pid)
    if seen is None or seen.start_ticks != start_ticks:
        return False
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
