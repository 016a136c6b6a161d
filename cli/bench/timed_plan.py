"""Runs a timed plan in a fresh process, and samples how much memory it and its children hold."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from app.worker.process import WorkerDied, WorkerProcess
from cli.exits import INTERNAL, Failed

if TYPE_CHECKING:
    from benchmarks.timed import TimedRun
    from solvers.planning.problem import Problem

OnMessage: TypeAlias = Callable[[dict[str, Any]], None]

DAY_SECONDS = 86_400.0  # a guard: the run itself ends by its budget
SAMPLE_SECONDS = 0.1
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


def time_plan(problem: Problem, order: TimedRun, on_message: OnMessage) -> tuple[list[dict[str, Any]], float]:
    """Returns all messages of the process, and the most MB that it and its children held."""
    process = WorkerProcess("the timed plan", ["benchmarks.timed"], os.environ)
    watch = MemorySampler(process.pid)
    messages: list[dict[str, Any]] = []
    try:
        with process.within(DAY_SECONDS):
            process.send((order, problem))
            watch.start()
            while not messages or messages[-1]["what"] != "judged":
                messages.append(process.receive())
                if messages[-1]["what"] == "planned":
                    watch.stop()
                on_message(messages[-1])
    except WorkerDied as died:
        raise Failed(f"{died}; its error is printed above", INTERNAL) from None
    finally:
        watch.stop()
        process.end()
    return messages, watch.peak_mb


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
    """Returns the process and its descendants, where the system has /proc."""
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
    """Returns resident memory; 0 of a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB
    except (OSError, IndexError):
        return 0.0
