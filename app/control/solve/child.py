"""The solver's process: carries out orders, and ends with its parent."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from app.worker.orders import take_orders
from solvers.planning.workers import dies_with, lower_priority

FIRST_TO_GO = "500"  # when memory runs out, this process should end before a database or the planner


def main(parent: int, nice: int, cores: int) -> None:
    """Answers orders until the parent ends, also amid a search."""
    if not dies_with(parent):
        return
    lower_priority(nice)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])  # the last ones
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
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
