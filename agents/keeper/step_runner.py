"""Runs slow steps on worker threads next to the keeper's own, one at a time for each copy."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)

MOST_WAITING_STEPS = 1024  # a thread each: more than a node can have copies, so that none waits for another's answer

Result = Callable[[], None]


def do_nothing() -> None:
    """Does nothing: the result of a step that has nothing to record."""


class StepRunner:
    """Runs each step's result on the thread that calls `take_results`, so that only one thread records."""

    def __init__(self, workers: int, wake: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="step") if workers else None
        self._waiting = ThreadPoolExecutor(MOST_WAITING_STEPS, thread_name_prefix="waiting") if workers else None
        self._wake = wake
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._busy: set[str] = set()

    def is_busy(self, name: str) -> bool:
        return name in self._busy

    def do(self, name: str, step: Callable[[], Result], waits: bool = False) -> None:
        """Starts a step; without workers it runs at once. A step that `waits` for its copy delays no other step."""
        self._busy.add(name)

        def run() -> None:
            try:
                result = step()
            except Exception:
                log.exception("a step of %s failed", name)
                result = do_nothing

            def finish() -> None:
                self._busy.discard(name)
                result()

            self._results.put(finish)
            self._wake()

        pool = self._waiting if waits else self._pool
        if pool is None:
            run()
            self.take_results()
        else:
            pool.submit(run)

    def take_results(self) -> None:
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                return
            result()

    def stop(self) -> None:
        """Waits for running steps and cancels those not yet begun."""
        for pool in (self._pool, self._waiting):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
