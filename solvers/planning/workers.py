"""Runs work in processes that send each result, so that a process that dies loses only what it had not sent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable
from math import inf
from multiprocessing.connection import Connection, wait
from typing import Any

FORK = multiprocessing.get_context("fork")  # a worker starts at once with all the data of its parent
NICE = 15  # at least; next to a server at equal priority, 5 % of its requests waited 100 ms; at 15, 0.2 %
DIES_WITH_PARENT = 1  # prctl: PR_SET_PDEATHSIG


def dies_with(parent: int) -> bool:
    """Has this process killed when the thread that started it ends; returns False if the parent is gone already."""
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    return os.getppid() == parent


def lower_priority(nice: int) -> None:
    """Lowers the priority to this niceness, unless it is lower already."""
    os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))


class Worker:
    """One process that works through `findings` and sends each."""

    def __init__(self, name: str, findings: Iterable[Any]) -> None:
        self.name = name
        self.failed = False
        self.findings = findings
        self.receiver: Connection[Any, Any]
        self._sender: Connection[Any, Any]
        self._parent = 0
        self.process = FORK.Process(target=self._run, name=f"gpuwright {name}", daemon=True)

    def start(self) -> None:
        """Forks the process, unless it was started before."""
        if self.process.pid is None:
            # The pipe is made here, and its end closed before another worker starts: a worker with a copy would
            # hide the death of this one.
            self._parent = os.getpid()
            self.receiver, self._sender = FORK.Pipe(duplex=False)
            self.process.start()
            self._sender.close()

    def stop(self) -> None:
        """Kills the process if it runs and closes its pipe."""
        if self.process.pid is None:
            return
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.receiver.close()

    def _run(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not dies_with(self._parent):
            return
        lower_priority(NICE)
        self.receiver.close()
        try:
            for finding in self.findings:
                self._sender.send(finding)
        except Exception as error:  # the solver goes on without it; one line for the log
            sys.stderr.write(f"the {self.name} process failed: {type(error).__name__}: {error}\n")
            sys.exit(1)


def gather(workers: list[Worker], deadline: float | Callable[[], float] | None) -> Generator[Any, None, None]:
    """Yields what the workers send until all are done or the deadline, which may move, has passed; then stops them."""
    try:
        for worker in workers:
            worker.start()
        listening: dict[Connection[Any, Any], Worker] = {worker.receiver: worker for worker in workers}
        while listening:
            ends_at = deadline() if callable(deadline) else deadline
            seconds = None if ends_at is None or ends_at == inf else ends_at - time.monotonic()
            if seconds is not None and seconds <= 0:
                return
            for connection in wait(list(listening), seconds):
                worker = listening[connection]  # type: ignore[index]
                try:
                    finding = worker.receiver.recv()
                except Exception:  # the process ended, or was killed while sending
                    del listening[worker.receiver]
                    worker.process.join()
                    worker.failed = worker.process.exitcode != 0
                    continue
                yield finding
    finally:
        for worker in workers:
            if worker.process.pid is not None:
                worker.stop()


def run_in_turn(workers: Iterable[Worker]) -> Generator[Any, None, None]:
    """Yields what the workers would send, one after the other: for callers that may not fork."""
    for worker in workers:
        yield from worker.findings
