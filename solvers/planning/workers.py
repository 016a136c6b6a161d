"""Processes that send what they find, and may die at any moment: what they have sent stands."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

FORK = multiprocessing.get_context("fork")  # a worker starts with all its maker knows, at once
NICE = 15  # at least; beside a server at equal priority, 5 % of its requests waited 100 ms; at 15, 0.2 %
DIES_WITH_PARENT = 1  # prctl: PR_SET_PDEATHSIG


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
        """Fork; a worker that was started before is left alone."""
        if self.process.pid is None:
            # The pipe is made here, and its end closed before another worker starts: one that kept a copy would hide
            # that this one has died.
            self._parent = os.getpid()
            self.receiver, self._sender = FORK.Pipe(duplex=False)
            self.process.start()
            self._sender.close()

    def stop(self) -> None:
        """End it, wherever it is, and forget it."""
        if self.process.pid is None:
            return
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.receiver.close()

    def _run(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started the parent stops the parent
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != self._parent:
            return  # it died before it could be watched
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
        self.receiver.close()
        try:
            for finding in self.findings:
                self._sender.send(finding)
        except Exception as error:  # the plan goes on without it: one line, for whoever looks
            sys.stderr.write(f"the {self.name} process ends: {type(error).__name__}: {error}\n")
            sys.exit(1)


def gather(workers: list[Worker], deadline: float | None) -> Iterator[Any]:
    """What the workers send, as it comes, until all are done or the deadline has passed; then none is left."""
    try:
        for worker in workers:
            worker.start()
        listening: dict[Connection[Any, Any], Worker] = {worker.receiver: worker for worker in workers}
        while listening:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            for connection in wait(list(listening), left):
                worker = listening[connection]  # type: ignore[index]
                try:
                    finding = worker.receiver.recv()
                except Exception:  # its end, or the middle of what a killed process was sending
                    del listening[worker.receiver]
                    worker.process.join()
                    worker.failed = worker.process.exitcode != 0
                    continue
                yield finding
    finally:
        for worker in workers:
            if worker.process.pid is not None:
                worker.stop()


def run_in_turn(workers: Iterable[Worker]) -> Iterator[Any]:
    """What the workers would send, one after the other, without a process: for who may not fork."""
    for worker in workers:
        yield from worker.findings
