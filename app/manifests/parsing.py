"""Inputs read where they harm nobody: small ones here, large ones in a process with a deadline and a memory limit."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from app.manifests.faults import ManifestFault, ManifestsRefused
from app.manifests.limits import InputLimits
from app.manifests.model import Key, Manifest
from app.manifests.parser_process import OUT_OF_MEMORY, ParseRequest, parse, read_frame, write_frame
from app.manifests.places import ParserBusy, Places
from app.manifests.reader import Media
from app.manifests.validate import Examined

__all__ = ["ParserBusy", "ParserPool"]

SMALL_BYTES = 32 * 1024  # read in the caller's thread, in 20 ms at worst; above it, other requests would notice
TINY_BYTES = 4 * 1024  # read at once; of those in between a few at a time, for they share one interpreter
AT_ONCE = 2
WORKERS = 2
WAITING = 8  # for a worker; more of them are told to come back
GROWN_MB = 160  # a worker that has been larger is replaced: freed memory is seldom given back
# Nothing else of the environment is any business of a process that reads what strangers send.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV")


class ParserPool:
    """Worker processes, started when the first large input comes and kept for the next."""

    def __init__(
        self, *, seconds: float = 20.0, memory_mb: int = 1024, workers: int = WORKERS, small_bytes: int = SMALL_BYTES
    ) -> None:
        self.seconds = seconds
        self.memory_mb = memory_mb
        self.small_bytes = small_bytes
        self._idle: list[_Worker] = []
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
        """Manifests and faults; Refused when the input cannot be read, Busy when all workers are.

        One `caller` has half of the places at most.
        """
        order = ParseRequest(media, limits, source, default_tenant, key)
        if len(data) <= self.small_bytes or len(data) > limits.max_bytes:
            if len(data) <= TINY_BYTES:
                return parse(data, order)
            with self._here:
                return parse(data, order)
        with self._places.turn(caller, self.seconds):
            return self._in_worker(data, order)

    def close(self) -> None:
        """End the workers that wait, and those at work once they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _in_worker(self, data: bytes, order: ParseRequest) -> Examined:
        worker = self._take()
        keep = False
        try:
            try:
                found, peak_mb = worker.parse(data, order, self.seconds)
            except _Killed:
                # Maybe while it waited, and not for this input: a fresh one will tell.
                worker.end()
                worker = _Worker(self.memory_mb, self.seconds)
                found, peak_mb = worker.parse(data, order, self.seconds)
            keep = peak_mb <= GROWN_MB
        finally:
            with self._lock:
                keep = keep and not self._closed
                if keep:
                    self._idle.append(worker)
            if not keep:
                worker.end()
        if isinstance(found, ManifestsRefused):
            try:
                raise found
            finally:
                del found  # else it and this frame hold each other, and with them megabytes of input
        return found

    def _take(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive():
                    return worker
                worker.end()
        return _Worker(self.memory_mb, self.seconds)


class _Killed(Exception):
    """A worker that had served before was killed from outside."""


class _Worker:
    """One process; whoever took it from the pool is alone with it."""

    def __init__(self, memory_mb: int, seconds: float) -> None:
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._memory_mb = memory_mb
        self._served = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.manifests.parser_process", str(memory_mb), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            close_fds=True,
            start_new_session=True,  # Ctrl-C is for the server, which then ends its workers
        )

    def alive(self) -> bool:
        return self._process.poll() is None

    def parse(self, data: bytes, order: ParseRequest, seconds: float) -> tuple[Examined | ManifestsRefused, int]:
        """What was found, or that it could not be read, and the worker's largest size in MB."""
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            outcome = self._exchange(data, order)
            self._served = True
            return outcome
        except (EOFError, OSError):
            status = self._process.wait()
            if late.is_set():
                return _refused(order.source, f"the input could not be read within {seconds:g} seconds"), 0
            if status == -signal.SIGKILL and self._served:
                raise _Killed from None
            if status in (OUT_OF_MEMORY, -signal.SIGKILL):
                return _refused(order.source, f"reading the input takes more than {self._memory_mb} MB of memory"), 0
            raise RuntimeError(f"the manifest parser ended with exit status {status}") from None
        finally:
            timer.cancel()

    def _exchange(self, data: bytes, order: ParseRequest) -> tuple[Examined | ManifestsRefused, int]:
        send, receive = self._process.stdin, self._process.stdout
        assert send is not None
        assert receive is not None
        write_frame(send, pickle.dumps(order))
        write_frame(send, data)
        manifests: list[Manifest] = []
        while True:
            found = pickle.loads(read_frame(receive))  # noqa: S301 - from our own process
            if isinstance(found, list):
                manifests += found
                continue
            last, peak_mb = found
            return (last if isinstance(last, ManifestsRefused) else last._replace(manifests=manifests)), peak_mb

    def end(self) -> None:
        """Gone at once: it holds nothing that anyone would miss."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._process.wait()


def _refused(source: str, message: str) -> ManifestsRefused:
    return ManifestsRefused([ManifestFault(source, "", message, "a smaller input, or several inputs")], too_large=True)
