"""Compiles those loops of some modules that are not cached, on all cores: `python -m solvers.compiling MODULE ...`.

A loop waits for the loops that it calls, which its process then loads, so none is compiled twice. The loops of the
module named first come first.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib import import_module

from solvers.compiled import WAITING, get, is_cached
from solvers.loop_cache import cache_folder, compiling_alone
from solvers.loop_key import loops_called_by

MOST_PROCESSES = 4  # each takes 300 MiB, and the longest chain of calls alone takes a third of the total time


def main(modules: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    turns: list[int] = []
    for turn, module in enumerate(modules):
        import_module(module)
        turns += [turn] * (len(WAITING) - len(turns))
    folder = cache_folder()
    if folder is not None:
        with compiling_alone(folder):
            compile_missing(turns)
    return 0


def compile_missing(turns: Sequence[int]) -> None:
    """Compiles every imported loop that is not cached, earlier turns first. The caller must have no threads."""
    missing = {id(loop): number for number, (loop, _) in enumerate(WAITING) if not is_cached(loop)}
    if not missing:
        return
    calls = {
        number: {missing[id(called)] for called in loops_called_by(WAITING[number][0]) if id(called) in missing}
        for number in missing.values()
    }
    behind = _work_behind(calls)
    order = sorted(calls, key=lambda number: (turns[number], -behind[number]))
    processes = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    # A forked worker knows every loop by its number.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        _run(pool, processes, order, calls)


def _run(pool: ProcessPoolExecutor, processes: int, pending: list[int], calls: dict[int, set[int]]) -> None:
    """Gives every free process the next loop in order whose called loops are all compiled."""
    running: dict[Future[None], int] = {}
    done = set(range(len(WAITING))) - set(calls)
    while pending or running:
        ready = [number for number in pending if calls[number] <= done][: processes - len(running)]
        for number in ready:
            pending.remove(number)
            running[pool.submit(_compile, number)] = number
        for finished in wait(running, return_when=FIRST_COMPLETED).done:
            finished.result()
            done.add(running.pop(finished))


def _work_behind(calls: dict[int, set[int]]) -> dict[int, int]:
    """Returns the length of the longest chain of callers that starts at each loop, in bytes of bytecode."""
    callers: dict[int, list[int]] = {number: [] for number in calls}
    for number, called in calls.items():
        for each in called:
            callers[each].append(number)
    behind: dict[int, int] = {}

    def length(number: int) -> int:
        if number not in behind:
            own = len(WAITING[number][0].py_func.__code__.co_code)
            behind[number] = own + max(map(length, callers[number]), default=0)
        return behind[number]

    return {number: length(number) for number in calls}


def _compile(number: int) -> None:
    get(*WAITING[number])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
