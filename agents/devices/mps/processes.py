"""The daemon and the servers of one pipe directory, as processes: found by what they are, and killed at the last."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

NAME = "nvidia-cuda-mps"  # of daemon and server alike, as the kernel cuts names off
PID_FILE = "nvidia-cuda-mps-control.pid"


def is_mps(pid: int) -> bool:
    """Whether the process is a daemon or a server of MPS; a PID alone may be anybody's by now."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith(NAME)
    except OSError:
        return False


def belongs(pid: int, pipe: Path) -> bool:
    """Whether the process is MPS's, and works for this pipe directory."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes() if is_mps(pid) else b""
    except OSError:
        return False
    return f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode() in environment.split(b"\0")


def daemon(pipe: Path) -> int | None:
    """The PID of the daemon that runs; it leaves a file that says so."""
    try:
        pid = int((pipe / PID_FILE).read_text())
    except (OSError, ValueError):
        return None
    return pid if belongs(pid, pipe) else None


def owner(pid: int) -> int | None:
    """The UID of a process, None where it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def everybodys() -> list[int]:
    """Daemons and servers of this machine, whoever runs them."""
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal() and is_mps(int(entry.name))]


def all_of(pipe: Path) -> list[int]:
    """Daemon and servers; those of a daemon that was killed, too."""
    return [pid for pid in everybodys() if belongs(pid, pipe)]


def kill(pid: int, pipe: Path) -> None:
    """At once, and nobody else's process."""
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if belongs(pid, pipe):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
