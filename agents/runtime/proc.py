"""Reads /proc: identifies a process, its groups and its descendants."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

_MOST_BYTES = 1 << 20  # an environment is longer only if someone made it so


class ProcessInfo(NamedTuple):
    """A process's identity. (pid, start_ticks) is unique within one boot; a PID alone is not."""

    pid: int
    start_ticks: int
    session: int
    zombie: bool
    stopped: bool


def read(path: str) -> bytes:
    """Reads a file of /proc; empty when the process is gone or not ours. Unbuffered: these are read by the hundred."""
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


def read_process(pid: int) -> ProcessInfo | None:
    """Returns a process; None if the PID does not exist."""
    text = read(f"/proc/{pid}/stat")
    # The program's name is in parentheses and may itself contain spaces and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return ProcessInfo(pid, int(fields[19]), int(fields[3]), fields[0] in (b"Z", b"X"), fields[0] == b"T")


def list_pids() -> Iterator[int]:
    """Returns the PIDs of all processes that are seen here."""
    with os.scandir("/proc") as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdecimal())


def own_pids(users: Collection[int]) -> Iterator[int]:
    """Returns the PIDs of this user's processes, and of those of other users whom copies run as."""
    wanted = {os.geteuid(), *users}
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with suppress(OSError):
                    if entry.stat().st_uid in wanted:
                        yield int(entry.name)


def read_variable(pid: int, name: str) -> str:
    """Returns a variable of the environment that a process was started with; empty if unset."""
    wanted = name.encode() + b"="
    for line in read(f"/proc/{pid}/environ").split(b"\0"):
        if line.startswith(wanted):
            return line[len(wanted) :].decode(errors="replace")
    return ""


def read_environment(pid: int) -> dict[str, str]:
    """Returns the environment that a process was started with."""
    lines = read(f"/proc/{pid}/environ").split(b"\0")
    pairs = (line.decode(errors="surrogateescape").partition("=") for line in lines if b"=" in line)
    return {name: value for name, _, value in pairs}


def output_files(pid: int) -> Iterator[str]:
    """Returns the files that a process's standard output and error go to, including deleted ones."""
    for number in (1, 2):
        with suppress(OSError):
            # Not through pathlib, which interns every part of every name.
            yield os.readlink(f"/proc/{pid}/fd/{number}").removesuffix(" (deleted)")  # noqa: PTH115


def descendants(pid: int) -> set[int]:
    """Returns a process, its children, their children, and so on, as long as their parents live."""
    found: set[int] = set()
    pending = [pid]
    while pending:
        parent = pending.pop()
        if parent in found:
            continue
        found.add(parent)
        pending.extend(list_children(parent))
    return found


def list_children(pid: int) -> list[int]:
    """Returns the processes that any thread of a process has started."""
    found: list[int] = []
    with suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
        for thread in threads:
            found.extend(map(int, read(f"{thread.path}/children").split()))
    return found


def send(pid: int, start_ticks: int, number: signal.Signals) -> bool:
    """Signals exactly the process that was started then; False, and no signal, if the PID was reused."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # no pidfd in this kernel or sandbox: checked just before
        return _send_by_number(pid, start_ticks, number)
    try:
        # Checked after the handle was opened: if it is the right process now, so is the handle's.
        process = read_process(pid)
        if process is None or process.start_ticks != start_ticks:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)


def _send_by_number(pid: int, start_ticks: int, number: signal.Signals) -> bool:
    process = read_process(pid)
    if process is None or process.start_ticks != start_ticks:
        return False
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
