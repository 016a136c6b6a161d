"""Receives HAProxy's log lines: a datagram socket with a large buffer, which one thread reads in batches."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from agents.gateway.requests import LONGEST_LINE_BYTES, Tallies

BUFFER_BYTES = 4 << 20  # some 10,000 lines, as the kernel counts them
BATCH_LINES = 2000
PAUSE_SECONDS = 0.01  # between batches, to wake once for many lines


class Receiver:
    """Counts lines until closed. `address` is HOST:PORT on loopback (port 0: any), or a path."""

    def __init__(self, address: str, tallies: Tallies) -> None:
        self.tallies = tallies
        self.lock = threading.Lock()  # held while the tallies change
        self._path: Path | None = None
        if address.startswith("/"):
            self._path = Path(address)
            self._path.unlink(missing_ok=True)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.bind(address)
            os.chmod(address, 0o660)  # noqa: PTH101
            # HAProxy drops, and counts, what does not fit; the kernel's limit is a number of lines, often 10
            self._pause_seconds = 0.0
        else:
            host, _, port = address.rpartition(":")
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._widen()
            self._socket.bind((host, int(port)))
            self._pause_seconds = PAUSE_SECONDS
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        if self._path:
            return str(self._path)
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def count_overflowed(self) -> int:
        """Returns how many lines the kernel dropped because they were not read in time."""
        if self._path:
            return 0
        inode = f" {os.fstat(self._socket.fileno()).st_ino} "
        for line in Path("/proc/net/udp").read_text().splitlines():
            if inode in line:
                return int(line.split()[-1])
        return 0

    def close(self) -> None:
        self._closing = True
        self._thread.join(5)
        self._socket.close()
        if self._path:
            self._path.unlink(missing_ok=True)

    def _widen(self) -> None:
        for option in (33, socket.SO_RCVBUF):  # SO_RCVBUFFORCE, which root may
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
                return
            except PermissionError:
                continue

    def _run(self) -> None:
        self._socket.setblocking(False)
        receive, add = self._socket.recv, self.tallies.add
        arrived = select.poll()
        arrived.register(self._socket, select.POLLIN)
        while not self._closing:
            if not arrived.poll(500):
                continue
            with self.lock, suppress(BlockingIOError):
                for _ in range(BATCH_LINES):
                    add(receive(LONGEST_LINE_BYTES + 2).rstrip(b"\n"), time.monotonic())
            if self._pause_seconds:
                time.sleep(self._pause_seconds)
