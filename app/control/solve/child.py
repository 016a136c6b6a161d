"""The solver's process: carries out orders, and ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from app.worker.orders import take_orders

DIES_WITH_PARENT = 1  # prctl: PR_SET_PDEATHSIG
FIRST_TO_GO = "500"  # where memory ends: a plan can be found again, a database or the planner had better stay


def lowered(nice: int, cores: int) -> None:
    """Lowers the priority, and keeps to so many cores, the last ones."""
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)


def main(parent: int, nice: int, cores: int) -> None:
    """Answers orders until the parent ends, also amid a search."""
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died before it could be watched
    lowered(nice, cores)
    orders, send = take_orders()

    from app import garbage
    from app.control.solve.serving import Serving

    serving = Serving()
    garbage.settle()  # here and in who is forked from here
    send("ready")
    for order in orders:
        send(serving.answer(order))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
