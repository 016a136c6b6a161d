"""A process that answers orders in time, or is killed with all that it forked."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Timer
from typing import IO, Any


class WorkerDied(Exception):
    """The process ended before it had answered."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # as subprocess has it


class WorkerLate(Exception):
    """The process had not answered by its deadline, and was killed."""


class WorkerProcess:
    """A module that answers orders (`app.worker.orders`), in a fresh interpreter.

    A fork would take our threads' locks and our connections with it. It leads a group of its own: Ctrl-C is for us,
    and what it forks ends with it. When we end in any way, its input does, and it follows.
    """

    def __init__(
        self,
        name: str,
        module: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_silent: bool = False,
        stderr: IO[str] | None = None,
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", *module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if is_silent else stderr,
            env=environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Ends the process unless it answers in time all that is asked here; raises WorkerLate or WorkerDied."""
        is_late, is_answered = Event(), False

        def kill() -> None:
            is_late.set()
            self.kill()

        watch = Timer(seconds, kill)
        watch.daemon = True
        watch.start()
        try:
            yield
            is_answered = True
        except (OSError, EOFError, pickle.UnpicklingError):
            if self._process.returncode is None:  # its output may end a moment before itself
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # not reaped: its group's number stays its own
            status = self.end()
            if is_late.is_set():
                raise WorkerLate(f"no answer within {seconds:g} s") from None
            how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            raise WorkerDied(f"{self.name} ended with {how}", status) from None
        finally:
            watch.cancel()
            watch.join()
            if is_late.is_set() or not is_answered:  # late perhaps at the very moment of its answer
                self.end()

    def send(self, order: object) -> None:
        """Sends an order. Use `within`."""
        # Whole: with each piece that is written this thread would queue for its turn again.
        self.send_pickled(pickle.dumps(order, pickle.HIGHEST_PROTOCOL))

    def send_pickled(self, order: bytes) -> None:
        """Sends an order that was pickled before."""
        assert self._process.stdin
        self._process.stdin.write(order)
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Waits for its next message. Use `within`."""
        assert self._process.stdout
        return pickle.load(self._process.stdout)  # noqa: S301 (from a process of ours)

    def kill(self) -> None:
        """Kills it with all that it forked; a thread that waits for its answer gets WorkerDied."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kills it if it lives, and returns how it ended."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe and pipe.close()
        return self._process.wait()
