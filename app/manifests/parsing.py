"""Reads inputs without harm to others: small ones here, large ones in a process with a deadline and a memory limit."""

from __future__ import annotations

import os
import signal
import sys
import threading

from app.manifests.faults import ManifestFault, ManifestsRefused
from app.manifests.limits import InputLimits
from app.manifests.model import Key, Manifest
from app.manifests.parser_process import OUT_OF_MEMORY, ParseRequest, parse
from app.manifests.reader import Media
from app.manifests.validate import Examined
from app.worker.places import Places
from app.worker.process import WorkerDied, WorkerLate, WorkerProcess

SMALL_BYTES = 32 * 1024  # read in the caller's thread, in 20 ms at worst; larger ones would delay other requests
TINY_BYTES = 4 * 1024  # read at once; larger ones a few at a time, because they share the interpreter
AT_ONCE = 2
WORKERS = 2
WAITING = 8  # for a worker; more of them are refused, and may come back
GROWN_MB = 160  # a worker that has been larger is replaced: freed memory is seldom given back
# Nothing else of the environment is any business of a process that reads what strangers send.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV")


class ParserPool:
    """Worker processes, started for the first large input and kept for later ones."""

    def __init__(
        self, *, seconds: float, memory_mb: int = 1024, workers: int = WORKERS, small_bytes: int = SMALL_BYTES
    ) -> None:
        self.seconds = seconds
        self.memory_mb = memory_mb
        self.small_bytes = small_bytes
        self._idle: list[_Parser] = []
        self._lock = threading.Lock()
        self._places = Places(workers, WAITING)
        self._here = threading.Semaphore(AT_ONCE)
        self._closed = False

    def parse(
        self,
        data: bytes,
        media: Media,
        limits: InputLimits,
        source: str = "input",
        default_tenant: str = "default",
        key: Key | None = None,
        caller: str = "",
    ) -> Examined:
        """Returns manifests and faults; raises ManifestsRefused, or WorkersBusy if all workers are taken.

        A `caller` may take half of the places.
        """
        order = ParseRequest(media, limits, source, default_tenant, key)
        if len(data) <= self.small_bytes or len(data) > limits.max_bytes:
            if len(data) <= TINY_BYTES:
                return parse(data, order)
            with self._here:
                return parse(data, order)
        with self._places.turn(caller, self.seconds):
            return self._parse_in_worker(data, order)

    def close(self) -> None:
        """Ends idle workers at once, and busy ones when they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _parse_in_worker(self, data: bytes, order: ParseRequest) -> Examined:
        try:
            parser = self._take()
            try:
                found, peak_mb = parser.parse(data, order, self.seconds)
            except WorkerDied as died:
                if died.status != -signal.SIGKILL or not parser.has_answered:
                    raise
                # Killed from outside, maybe while it waited and not for this input: a fresh process shows which.
                parser = _Parser(self.memory_mb, self.seconds)
                found, peak_mb = parser.parse(data, order, self.seconds)
        except WorkerLate:
            raise _refuse(order.source, f"the input could not be read within {self.seconds:g} seconds") from None
        except WorkerDied as died:
            if died.status not in (OUT_OF_MEMORY, -signal.SIGKILL):
                raise
            raise _refuse(order.source, f"reading the input takes more than {self.memory_mb} MB of memory") from None
        with self._lock:
            keep = peak_mb <= GROWN_MB and not self._closed
            if keep:
                self._idle.append(parser)
        if not keep:
            parser.end()
        if isinstance(found, ManifestsRefused):
            try:
                raise found
            finally:
                del found  # otherwise it and this frame keep each other alive, with megabytes of input
        return found

    def _take(self) -> _Parser:
        with self._lock:
            while self._idle:
                parser = self._idle.pop()
                if parser.is_alive():
                    return parser
                parser.end()
        return _Parser(self.memory_mb, self.seconds)


class _Parser(WorkerProcess):
    """One process; the thread that took it from the pool is alone with it."""

    def __init__(self, memory_mb: int, seconds: float) -> None:
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        words = ["app.manifests.parser_process", str(memory_mb), str(seconds)]
        super().__init__("the manifest parser", words, environment, is_silent=True)
        self.has_answered = False

    def parse(self, data: bytes, order: ParseRequest, seconds: float) -> tuple[Examined | ManifestsRefused, int]:
        """Returns what was found, or why it could not be read, and the process's largest size in MB."""
        manifests: list[Manifest] = []
        with self.within(seconds):
            self.send((data, order))
            while isinstance(found := self.receive(), list):
                manifests += found
        self.has_answered = True
        last, peak_mb = found
        return (last if isinstance(last, ManifestsRefused) else last._replace(manifests=manifests)), peak_mb


def _refuse(source: str, message: str) -> ManifestsRefused:
    return ManifestsRefused([ManifestFault(source, "", message, "a smaller input, or several inputs")], too_large=True)
