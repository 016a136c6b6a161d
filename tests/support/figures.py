"""Figures of a running process tree."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path


def tree(pid: int) -> list[int]:
    """A process and everything under it."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended just now
        parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for known in found:
        found += parents.get(known, [])
    return found


def descriptors() -> frozenset[tuple[str, str]]:
    """What this process has open: number and target. Whatever of it is new later was opened in between.

    Counts would not do: garbage of the tests before may be closed at any time, and so is closed first.
    """
    gc.collect()
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this very listing
            found.add((entry.name, str(entry.readlink())))
    return frozenset(found)


def rss_mb(pid: int) -> float:
    """Resident memory of a process tree, in MB."""
    return sum(_rss_kb(each) for each in tree(pid)) / 1024


def own_rss_mb(pid: int) -> float:
    """Resident memory of one process alone, in MB."""
    return _rss_kb(pid) / 1024


def ran_seconds(pid: int) -> float:
    """How long a process's first thread has been on a processor."""
    return int((Path("/proc") / str(pid) / "schedstat").read_text().split()[0]) / 1e9


def _rss_kb(pid: int) -> int:
    try:
        lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)
