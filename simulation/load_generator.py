"""Sends real requests to a real gateway, at moving rates: the load on the real services of `gpuwright up`.

Usage: python -m simulation.load_generator HOST:PORT SERVICE=PATH=RATE...
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulation.open_loop import RequestSender, TimedAnswer, send_when_due
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
    """Poisson arrivals at a service; each request is sent when it is due, no matter what happened to earlier ones."""

    def __init__(self, host: str, port: int, source: LoadSource) -> None:
        self.source = source
        self.answered = self.failed = 0
        self._sender = RequestSender(
            host, port, self._count, connections=source.most_open, timeout_seconds=PATIENCE_SECONDS
        )
        body = b'{"inputs": [[1.0]]}'
        head = f"POST /{source.service}{source.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def run(self) -> None:
        """Sends for ever, once a first request got the expected answer."""
        while not self.answered:
            self._send(time.monotonic())
            await self._sender.settle(PATIENCE_SECONDS)
            await asyncio.sleep(0.5)
        self.answered = self.failed = 0
        await send_when_due(self._arrivals(), self._send)

    def _arrivals(self) -> Iterator[float]:
        rng = random.Random(self.source.service)  # noqa: S311
        began = due = time.monotonic()
        while True:
            rate = self.source.rate_per_second * max(0.01, self.source.shape(due - began))
            due += rng.expovariate(rate)
            yield due

    def _send(self, due: float) -> None:
        self._sender.send(due, self._request)

    def _count(self, answer: TimedAnswer) -> None:
        self.answered += answer.status == 200
        self.failed += answer.status != 200


async def send_all(address: str, sources: Sequence[LoadSource]) -> None:
    host, _, port = address.rpartition(":")
    await asyncio.gather(*(LoadGenerator(host, int(port), source).run() for source in sources))


def main() -> int:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(send_all(sys.argv[1], [LoadSource.of(words) for words in sys.argv[2:]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
