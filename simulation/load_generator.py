"""Sends real requests to a real gateway, at moving rates: the load on the real services of `gpuwright up`.

Usage: python -m simulation.load_generator HOST:PORT SERVICE=PATH=RATE...
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from dataclasses import dataclass

from simulation.shapes import Shape, moving

MOST_CONNECTIONS = 32  # the limit of a service, unless set otherwise
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LoadSource:
    """One service, its path, and its rate."""

    service: str  # tenant/name
    path: str
    rate_per_second: float
    shape: Shape
    most_open: int = MOST_CONNECTIONS

    @staticmethod
    def of(words: str) -> LoadSource:
        service, path, rate = words.split("=")
        return LoadSource(service, path, float(rate), moving(sum(map(ord, service))))


class LoadGenerator:
    """Open loop: a request is sent when it is due, whatever happened to earlier ones."""

    def __init__(self, host: str, port: int, source: LoadSource) -> None:
        self._host, self._port, self.source = host, port, source
        self.answered = self.failed = 0
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._open = asyncio.Semaphore(source.most_open)
        body = b'{"inputs": [[1.0]]}'
        head = f"POST /{source.service}{source.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        rng = random.Random(self.source.service)  # noqa: S311
        while not await self._is_served():
            await asyncio.sleep(0.5)
        began = due = time.monotonic()
        while True:
            rate = self.source.rate_per_second * max(0.01, self.source.shape(due - began))
            due += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._ask())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _is_served(self) -> bool:
        """Returns True if one request gets the expected answer."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            return b" 200 " in await asyncio.wait_for(self._exchange(), PATIENCE_SECONDS)
        return False

    async def _ask(self) -> None:
        async with self._open:
            good = False
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
                good = b" 200 " in await asyncio.wait_for(self._exchange(), PATIENCE_SECONDS)
            self.answered += good
            self.failed += not good

    async def _exchange(self) -> bytes:
        """Sends one request and returns the first line of its answer."""
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(self._request)
            said = await reader.readuntil(b"\r\n\r\n")
            head = said.lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
            await reader.readexactly(int(length or b"0"))
        except BaseException:
            writer.close()
            raise
        if b"connection: close" in head or not length:
            writer.close()
        else:
            self._free.append((reader, writer))
        return said.partition(b"\r\n")[0]


async def ask(address: str, asked: list[LoadSource]) -> None:
    host, _, port = address.rpartition(":")
    await asyncio.gather(*(LoadGenerator(host, int(port), one).run() for one in asked))


def main() -> int:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(ask(sys.argv[1], [LoadSource.of(words) for words in sys.argv[2:]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
