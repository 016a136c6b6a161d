"""Runs one timed plan in a fresh process, and watches how much memory it and its children hold."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cli.exits import INTERNAL, Failed

if TYPE_CHECKING:
    from benchmarks.timed import TimedRun
    from solvers.planning.problem import Problem

Hear: TypeAlias = Callable[[dict[str, Any]], None]

SAMPLE_SECONDS = 0.1
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


def planned(problem: Problem, order: TimedRun, tell: Hear) -> tuple[list[dict[str, Any]], float]:
    """All that the process told, and the most MB that it and its children held; `tell` hears each line at once."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.timed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin and process.stdout
    watch = MemorySampler(process.pid)
    told: list[dict[str, Any]] = []
    try:
        with process.stdin as pipe:
            pickle.dump((order, problem), pipe)
        watch.start()
        for line in process.stdout:
            heard = json.loads(line)
            told.append(heard)
            if heard["what"] == "planned":
                watch.stop()
            tell(heard)
        if process.wait():
            raise Failed(f"the timed plan ended with {process.returncode}; what went wrong stands above", INTERNAL)
    except BrokenPipeError:
        raise Failed("the timed plan ended before it had read its problem", INTERNAL) from None
    finally:
        watch.stop()
        process.kill()
        process.wait()
    return told, watch.peak_mb


class MemorySampler:
    """Samples the resident memory of a process and its descendants; pages they share count once for each."""

    def __init__(self, pid: int) -> None:
        self.peak_mb = 0.0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, sum(map(resident_mb, family_of(self._pid))))
            if self._stop.wait(SAMPLE_SECONDS):
                return


def family_of(pid: int) -> list[int]:
    """The process and all that descend from it, where the system has /proc."""
    found, at = [pid], 0
    while at < len(found):
        for listed in Path(f"/proc/{found[at]}/task").glob("*/children"):
            try:
                found += map(int, listed.read_text().split())
            except OSError:  # it ended meanwhile
                continue
        at += 1
    return found


def resident_mb(pid: int) -> float:
    """Resident memory; 0 of a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB
    except (OSError, IndexError):
        return 0.0
