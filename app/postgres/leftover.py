"""Stops what an earlier start left running on a folder; only the holder of the folder's lock may call it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

# A fast shutdown writes a checkpoint; an immediate one leaves recovery to the next start; both lose nothing.
ESCALATION = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))


def stop_leftovers(cluster: Path) -> list[int]:
    """Stops leftover servers and returns their processes; then none runs on `cluster`, and no pid file names one."""
    stopped: set[int] = set()
    for number, patience_seconds in ESCALATION:
        running = servers_on(cluster)
        if not running:
            break
        stopped.update(running)
        postmaster = pid_in_file(cluster)
        if number == signal.SIGINT and postmaster not in running:
            continue  # to the other processes it only means that their statement is cancelled
        for pid in [postmaster] if number == signal.SIGINT and postmaster else running:
            _signal(pid, cluster, number)
        deadline = time.monotonic() + patience_seconds
        while servers_on(cluster) and time.monotonic() < deadline:
            time.sleep(0.02)
    # Postgres believes a stale file if its number belongs to another process of the same user now, as happens
    # after every restart of a container.
    for stale in [cluster / "postmaster.pid", *cluster.glob(".s.PGSQL.*")]:
        stale.unlink(missing_ok=True)
    return sorted(stopped)


def servers_on(cluster: Path) -> list[int]:
    """Returns the Postgres processes that work in this folder, found by their working directory: PIDs are reused."""
    numbered = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [int(entry.name) for entry in numbered if _serves(entry, cluster)]


def pid_in_file(cluster: Path) -> int | None:
    try:
        return int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _serves(process: Path, cluster: Path) -> bool:
    try:
        return (process / "comm").read_text() == "postgres\n" and (process / "cwd").samefile(cluster)
    except OSError:  # ended meanwhile, or another user's
        return False


def _signal(pid: int, cluster: Path, number: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _serves(Path(f"/proc/{pid}"), cluster):  # asked again now that the handle pins the process
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
