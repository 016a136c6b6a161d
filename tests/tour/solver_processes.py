"""The processes in which a planner searches whole plans: found, and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from agents.runtime.proc import descendants

KILL_SECONDS = 0.1  # a solver that starts needs longer until it answers


def find_solvers(ancestor: int) -> list[int]:
    """Returns those that this process has started, or that its children have."""
    return [pid for pid in descendants(ancestor) if _is_full_solver(pid)]


@contextmanager
def dying_solvers(ancestor: int) -> Iterator[None]:
    """Kills each of them before it can answer, however long a test's requests take meanwhile."""
    is_over = Event()

    def kill() -> None:
        for pid in find_solvers(ancestor):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def go_on_killing() -> None:
        while not is_over.wait(KILL_SECONDS):
            kill()

    kill()  # a solver that runs already answers sooner than one that starts
    killing = Thread(target=go_on_killing, name="kills solvers")
    killing.start()
    try:
        yield
    finally:
        is_over.set()
        killing.join()


def _is_full_solver(pid: int) -> bool:
    """Returns whether it searches whole plans: its low priority tells it from the other solvers."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False
    return "app.control.solve.child" in words and "15" in words
