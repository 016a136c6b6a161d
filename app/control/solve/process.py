"""One warm process that must answer in time; it is replaced if it does not, or dies."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Timer
from typing import Any

START_SECONDS = 600.0  # a fresh install compiles its loops first, at a low priority
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Died(Exception):
    """The process ended before it had answered."""


class Late(Exception):
    """The process had not answered by its deadline, and was killed."""


@dataclass
class Child:
    """A process of `app.control.solve.child`. All that is asked of it goes through one thread, in order.

    The kernel ends the process with the thread that started it, hence one thread that lives as long as we do.
    """

    name: str
    nice: int
    cores: int
    _is_closed: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _thread: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"solver {self.name}")

    def start(self) -> Future[None]:
        """Starts to make it warm, without waiting."""
        return self._thread.submit(self._started)

    def ask(self, order: object, seconds: float) -> Future[Any]:
        """Returns its answer in the future; or Died, or Late."""
        return self._thread.submit(self._ask, order, seconds)

    @property
    def pid(self) -> int:
        """The id of the process; 0 if there is none."""
        return self._process.pid if self._process else 0

    def close(self) -> None:
        """Ends it, whatever it does."""
        self._is_closed = True
        if process := self._process:
            _kill(process)  # a caller that waits gets Died
        self._thread.submit(self._end).result()
        self._thread.shutdown()

    def _ask(self, order: object, seconds: float) -> Any:
        self._started()
        return self._within(seconds, order)

    def _started(self) -> None:
        if self._is_closed:
            raise Died("the solver is closed")
        if self._process and self._process.poll() is None:
            return
        self._end()
        # Started afresh: a fork would take the planner's threads' locks and its connections with it. One thread for
        # linear algebra: how a sum is split among threads changes its last digits, and plans with them.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.control.solve.child", f"{os.getpid()}", f"{self.nice}", f"{self.cores}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
        self._within(START_SECONDS)

    def _within(self, seconds: float, order: object = None) -> Any:
        """Returns its next message; kills it if none comes within so many seconds."""
        process = self._process
        assert process
        assert process.stdin
        assert process.stdout
        is_late = False

        def late() -> None:
            nonlocal is_late
            is_late = True
            _kill(process)

        watch = Timer(seconds, late)
        watch.daemon = True
        watch.start()
        try:
            if order is not None:
                # Whole: with each piece that is written this thread would queue for its turn again.
                process.stdin.write(pickle.dumps(order, pickle.HIGHEST_PROTOCOL))
                process.stdin.flush()
            return pickle.load(process.stdout)  # noqa: S301 (from a process of ours)
        except (OSError, EOFError, pickle.UnpicklingError):
            ended = self._end()
            if is_late:
                raise Late(f"no answer within {seconds:g} s") from None
            raise Died(f"the solver's process ended with {ended}") from None
        finally:
            watch.cancel()
            watch.join()
            if is_late:  # perhaps at the very moment of its answer
                self._end()

    def _end(self) -> str:
        """Ends it with all that it forked; returns how it ended."""
        process, self._process = self._process, None
        if process is None:
            return ""
        _kill(process)
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe and pipe.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It leads a group of its own. Not yet waited for, so that its number is still its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
