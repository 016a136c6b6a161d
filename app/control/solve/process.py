"""A warm solver in a process of its own, which is replaced if it dies or does not answer in time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from app.control.solve.child import COMPILING
from app.worker.kept import KeptObjects
from app.worker.process import WorkerDied, WorkerProcess
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

log = logging.getLogger(__name__)

COMPILE_SECONDS = 600.0  # a fresh install compiles its loops first, at a low priority
# How a sum is split among threads changes its last digits, and plans with them.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class SolverProcess:
    """A process of `app.control.solve.child`. All orders go through one thread, one after the other.

    The kernel ends the process with the thread that started it, hence one thread that lives as long as we do.
    """

    name: str
    nice: int
    cores: int
    is_warm: bool = True  # reads its loops before it answers, else each when it is first called
    needed: tuple[str, ...] = ()  # further modules that it imports, and whose loops it reads, before it answers
    on_compiling: Callable[[], object] = bool  # called if it must wait until its loops are compiled
    _is_compiling: bool = False
    _told: Event = field(default_factory=Event)  # whether it compiles
    _is_closed: bool = False
    _process: WorkerProcess | None = None
    _kept: KeptObjects = field(init=False)  # what the process has of earlier orders
    _thread: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"solver {self.name}")

    def start(self) -> Future[WorkerProcess]:
        """Starts the process, without waiting until it is warm."""
        return self._thread.submit(self._start_worker)

    def ask(self, order: object, seconds: float) -> Future[Any]:
        """Returns its answer in the future; or WorkerDied, or WorkerLate."""
        return self._thread.submit(self._ask, order, seconds)

    def is_compiling(self) -> bool:
        """Returns whether its loops must still be compiled; waits until a process that starts knows that."""
        self._told.wait()
        return self._is_compiling

    @property
    def pid(self) -> int:
        """The id of the process; 0 if there is none."""
        return self._process.pid if self._process else 0

    def close(self) -> None:
        """Ends it, even in the middle of an order."""
        self._is_closed = True
        self._told.set()
        if process := self._process:
            process.kill()
        self._thread.submit(self._end).result()  # the thread stays, to refuse callers that wait for a turn

    def _ask(self, order: object, seconds: float) -> object:
        process = self._start_worker()
        with process.within(seconds):
            process.send_pickled(self._kept.pickle_order(order))
            return process.receive()

    def _start_worker(self) -> WorkerProcess:
        if self._is_closed:
            raise WorkerDied("the solver is closed")
        if self._process and self._process.is_alive():
            return self._process
        self._end()
        try:
            return self._launch()
        finally:
            self._is_compiling = False
            self._told.set()

    def _launch(self) -> WorkerProcess:
        numbers = (os.getpid(), self.nice, self.cores, int(self.is_warm))
        words = ["app.control.solve.child", *map(str, numbers), *self.needed]
        process = self._process = WorkerProcess("the solver's process", words, {**os.environ, **ONE_THREAD})
        Thread(target=self._reap, args=(process,), daemon=True).start()
        self._kept = KeptObjects(Problem, Plan)
        with process.within(COMPILE_SECONDS):
            if process.receive() == COMPILING:
                self._is_compiling = True
                self._told.set()
                self.on_compiling()
                process.receive()  # its loops are ready
        return process

    def _reap(self, process: WorkerProcess) -> None:
        """Waits until the process has ended, and takes its status: it would be a zombie until the next order."""
        with suppress(ChildProcessError):  # it was taken already
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # not yet: the thread of orders does, in its turn
        with suppress(RuntimeError):  # the interpreter ends
            self._thread.submit(self._end_if, process)

    def _end_if(self, process: WorkerProcess) -> None:
        if self._process is process and not process.is_alive():
            log.warning("solver process %d (%s) has ended; the next order starts another one", process.pid, self.name)
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            process.end()
