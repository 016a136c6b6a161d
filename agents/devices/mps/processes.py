"""Finds the daemon and the servers of one pipe directory as processes, and kills them as a last resort."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agents.host.plain_files import read_start
from agents.seams.mps_variables import VISIBLE_DEVICES_VARIABLE

NAME = "nvidia-cuda-mps"  # of daemon and server alike, truncated by the kernel
PIPE, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PID_FILE = "nvidia-cuda-mps-control.pid"


def is_mps(pid: int) -> bool:
    """Returns True if the process is a daemon or a server of MPS, since a PID may have been reused."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith(NAME)
    except OSError:
        return False


def belongs(pid: int, pipe: Path) -> bool:
    """Returns True if the process is MPS's and works for this pipe directory."""
    return is_mps(pid) and (_read_environment(pid) or {}).get(PIPE) == str(pipe)


def find_foreign(uuid: str, pipe: Path, logs: Path) -> list[int]:
    """Returns the daemons and servers of others that may use the GPU, from any pipe directory.

    Ours are those with both our pipe and our log directory: they outlive the agent that started them.
    """
    found = []
    for pid in all_processes():
        environment = _read_environment(pid)
        if environment is not None and _is_foreign(environment, uuid, pipe, logs):
            found.append(pid)
    return found


def describe(pid: int) -> str:
    """Returns words that name a process of MPS to an operator."""
    pipe = (_read_environment(pid) or {}).get(PIPE, "")
    return f"process {pid} of user {owner_uid(pid)}" + (f" in {pipe}" if pipe else "")


def _is_foreign(environment: Mapping[str, str], uuid: str, pipe: Path, logs: Path) -> bool:
    place = environment.get(PIPE, "")
    if place == str(pipe):
        return environment.get(LOGS) != str(logs)
    if Path(place).parent == pipe.parent:
        return False  # another GPU's daemon, which is looked at with that GPU
    return may_use(environment, uuid)


def may_use(environment: Mapping[str, str], uuid: str) -> bool:
    """Returns True if a process with this environment may use the GPU: without a list of devices, it may use any."""
    devices = environment.get(VISIBLE_DEVICES_VARIABLE)
    return devices is None or any(_may_be(device.strip(), uuid) for device in devices.split(","))


def _may_be(device: str, uuid: str) -> bool:
    """Returns True if a word of CUDA_VISIBLE_DEVICES may stand for the GPU: an index may stand for any."""
    return uuid.startswith(device) if device.startswith(("GPU-", "MIG-")) else device.isdecimal()


def _read_environment(pid: int) -> Mapping[str, str] | None:
    """Returns a process's environment, as it was started: empty where it is not for us to read, None if it is gone."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
        if not raw:
            Path(f"/proc/{pid}/exe").readlink()  # fails for one that has ended, and is only not yet reaped
    except PermissionError:
        return {}
    except OSError:
        return None
    words = raw.decode(errors="replace").split("\0")
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


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
