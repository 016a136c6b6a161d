"""Stands in for CUDA in a process: attached to a simulated MPS daemon, it has limits, memory, and can be terminated.

The daemon's socket lies in the pipe directory. The open connection is the client. Without a socket there the process
runs without MPS and without limits, and gets no warning: like CUDA, `attach` then returns None.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from agents.devices.simulated.limits import ClientLimits, read_limits
from agents.devices.simulated.refusals import CANNOT_CONNECT, TERMINATED, CudaRefusal
from agents.devices.simulated.speeds import PlayedLoad
from agents.host.wire import connect

SOCKET = "device.sock"
RECONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
LONGEST_LINE_BYTES = 4096


def exit_at_once(reason: str) -> NoReturn:
    """Exits, because a process whose context is gone can do nothing right."""
    sys.stderr.write(f"{reason}\n")
    sys.stderr.flush()
    os._exit(1)


def attach(
    environ: Mapping[str, str],
    memory_gib: float = 0.0,
    failed: Callable[[str], object] = exit_at_once,
    load: PlayedLoad | None = None,
) -> SimulatedClient | None:
    """Becomes a client that holds `memory_gib` and plays a load; None where there is no daemon. Raises CudaRefusal.

    `failed` is called once, from the client's own thread, when the context is gone for good: terminated, hit by a fatal
    fault, or the daemon was away for 5 s.
    """
    limits = read_limits(environ)
    if limits is None:
        return None
    client = SimulatedClient(limits, memory_gib, failed, load)
    try:
        client.open()
    except (FileNotFoundError, ConnectionRefusedError):
        return None  # as CUDA does: silently without limits
    except OSError as error:
        raise CudaRefusal(CANNOT_CONNECT, f"{limits.folder / SOCKET}: {error}") from error
    threading.Thread(target=client.listen, name="mps-client", daemon=True).start()
    return client


class SimulatedClient:
    """An attached client. `sm_count` is the number of multiprocessors that it may use."""

    def __init__(
        self,
        limits: ClientLimits,
        memory_gib: float,
        failed: Callable[[str], object],
        load: PlayedLoad | None,
    ) -> None:
        self.sm_count = 0
        self.times_ms: Mapping[str, float] = {}  # of its batches, by size; empty: as it says itself
        self.memory_gib = memory_gib
        self.limits = limits
        self._failed = failed
        self._load = load
        self._closed = False
        self._speaking = threading.Lock()  # one question at a time
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._connection: socket.socket | None = None
        self._rest = b""

    def hold(self, memory_gib: float) -> None:
        """Holds this much device memory from now on; CudaRefusal, and no change, when there is not enough.

        While the daemon is away nothing is requested: it learns the amount when it is back.
        """
        self._ask({"memoryGib": memory_gib})
        self.memory_gib = memory_gib

    def busy(self, fraction: float, batch: int = 1) -> Mapping[str, float]:
        """Reports which part of the last second the device worked for this client; a lost report does no harm.

        Returns the milliseconds of its batches from now on, by size; empty where the device leaves that to the client.
        """
        words = {"busy": min(1.0, max(0.0, fraction))} | ({"batch": float(batch)} if self._load else {})
        self.times_ms = _times_ms(self._ask(words) or {}) or self.times_ms
        return self.times_ms

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        """Connects and requests the limits; raises OSError or CudaRefusal."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(ANSWER_SECONDS)
            connect(connection, self.limits.folder / SOCKET)
            hello = {"pid": os.getpid(), "uuid": self.limits.uuid, "smPercent": self.limits.sm_percent}
            hello |= {"memoryLimitGib": self.limits.memory_gib, "memoryGib": self.memory_gib}
            hello |= {"load": self._load.words} if self._load else {}
            connection.sendall(json.dumps(hello).encode() + b"\n")
            self._rest = b""
            answer = self._line(connection)
            if answer is None:
                raise CudaRefusal(CANNOT_CONNECT, "the daemon closed the connection")
            _raise_refusal(answer)
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        self.sm_count = int(answer.get("smCount", 0))
        self.times_ms = _times_ms(answer)
        self._connection = connection

    def listen(self) -> None:
        """Passes answers to waiting callers, reconnects after a restart of the daemon, and reports the end."""
        while not self._closed:
            connection = self._connection
            assert connection is not None
            try:
                message = self._line(connection)
            except (OSError, ValueError):
                message = None
            if message is None:
                connection.close()
                self._answers.put(None)
                if self._closed:
                    return
                reason = self._come_back()
                if reason:
                    self._failed(reason)
                    return
            elif message.get("error") == TERMINATED:
                self._answers.put(None)
                self._closed = True  # the connection stays open: the process is a client until it exits
                self._failed(f"CUDA error {TERMINATED}: {message.get('message', 'terminated by the MPS daemon')}")
            else:
                self._answers.put(message)

    def _come_back(self) -> str:
        until = time.monotonic() + RECONNECT_SECONDS
        reason = "no daemon"
        while time.monotonic() < until:
            time.sleep(0.05)
            try:
                self.open()
                return ""
            except (OSError, CudaRefusal, ValueError) as error:
                reason = str(error)
        return f"the MPS daemon did not come back within {RECONNECT_SECONDS:g} s: {reason}"

    def _ask(self, words: Mapping[str, Any]) -> Mapping[str, Any] | None:
        with self._speaking:
            while not self._answers.empty():
                self._answers.get()  # of a caller that gave up, or of a lost connection
            connection = self._connection
            if connection is None:
                return None
            try:
                connection.sendall(json.dumps(words).encode() + b"\n")
                answer = self._answers.get(timeout=ANSWER_SECONDS)
            except (OSError, queue.Empty):
                return None
        if answer is not None:
            _raise_refusal(answer)
        return answer

    def _line(self, connection: socket.socket) -> dict[str, Any] | None:
        while b"\n" not in self._rest:
            more = connection.recv(LONGEST_LINE_BYTES)
            if not more or len(self._rest) > LONGEST_LINE_BYTES:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError(f"malformed answer of the daemon: {line[:80]!r}")
        return message


def _raise_refusal(answer: Mapping[str, Any]) -> None:
    code = answer.get("error")
    if code:
        raise CudaRefusal(int(code), str(answer.get("message", "")))


def _times_ms(answer: Mapping[str, Any]) -> Mapping[str, float]:
    times = answer.get("timesMs")
    return times if isinstance(times, dict) else {}
