"""Runs slow steps on worker threads next to the keeper's own, one at a time for each copy."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)

SLOW_WORKER_FACTOR = 2  # this many times the workers for steps that may wait long for a copy

Result = Callable[[], None]


def do_nothing() -> None:
    """Does nothing: the result of a step that has nothing to record."""


class StepRunner:
    """Runs each step's result on the thread that calls `take_results`, so that only one thread records."""

    def __init__(self, workers: int, wake: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="step") if workers else None
        self._slow = ThreadPoolExecutor(SLOW_WORKER_FACTOR * workers, thread_name_prefix="slow") if workers else None
        self._wake = wake
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._busy: set[str] = set()

    def is_busy(self, name: str) -> bool:
        return name in self._busy

    def do(self, name: str, step: Callable[[], Result], slow: bool = False) -> None:
        """Starts a step; without workers it runs at once. Slow steps have their own pool and delay no others."""
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

        pool = self._slow if slow else self._pool
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
        for pool in (self._pool, self._slow):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
