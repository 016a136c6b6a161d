"""The solver's process: carries out orders, and ends with its parent.

It says once that it is ready, and before that, if so, that its loops must be compiled first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from app.worker.orders import offer_memory, take_orders
from solvers.planning.workers import dies_with, lower_priority

READY, COMPILING = "ready", "compiling"


def main(needed: Sequence[str], parent: int, nice: int, cores: int, is_warm: int) -> None:
    """Answers orders until the parent ends, also amid a search. It has imported the needed modules by then."""
    if not dies_with(parent):
        return
    lower_priority(nice)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])  # the last ones
    offer_memory()
    orders, send = take_orders()

    from app import garbage
    from app.control.solve.serving import Serving
    from solvers.compiled import are_compiled

    serving = Serving()
    for name in needed:
        import_module(name)
    if is_warm:
        if not are_compiled():
            send(COMPILING)
        serving.read_loops()
    garbage.settle()  # here and in who is forked from here
    send(READY)
    for order in orders:
        send(serving.answer(order))


if __name__ == "__main__":
    main(sys.argv[5:], *map(int, sys.argv[1:5]))
