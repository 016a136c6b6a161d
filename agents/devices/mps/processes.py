"""Finds the daemon and the servers of one pipe directory as processes, and kills them as a last resort."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from agents.host.plain_files import read_start

NAME = "nvidia-cuda-mps"  # of daemon and server alike, truncated by the kernel
PID_FILE = "nvidia-cuda-mps-control.pid"


def is_mps(pid: int) -> bool:
    """Returns True if the process is a daemon or a server of MPS, since a PID may have been reused."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith(NAME)
    except OSError:
        return False


def belongs(pid: int, pipe: Path) -> bool:
    """Returns True if the process is MPS's and works for this pipe directory."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes() if is_mps(pid) else b""
    except OSError:
        return False
    return f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode() in environment.split(b"\0")


def daemon_pid(pipe: Path) -> int | None:
    """Returns the PID of the running daemon, which it writes to a file."""
    try:
        pid = int(read_start(pipe / PID_FILE, 32))  # any user of the GPU may have written anything there
    except (OSError, ValueError):
        return None
    return pid if belongs(pid, pipe) else None


def owner_uid(pid: int) -> int | None:
    """Returns the UID of a process, None when it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def all_processes() -> list[int]:
    """Returns the daemons and servers of this machine, of any user."""
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal() and is_mps(int(entry.name))]


def all_of(pipe: Path) -> list[int]:
    """Returns daemon and servers, also those of a daemon that was killed."""
    return [pid for pid in all_processes() if belongs(pid, pipe)]


def kill(pid: int, pipe: Path) -> None:
    """Kills the process at once, if it still is MPS's."""
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if belongs(pid, pipe):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
