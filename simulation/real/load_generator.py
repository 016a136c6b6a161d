"""Sends real requests to a real gateway, at moving rates: the load on the real services of `gpuwright up`.

Usage: python -m simulation.real.load_generator HOST:PORT SERVICE=PATH=RATE[=LENGTHS]...

LENGTHS are mean and 95th percentile of the tokens in and of those out, for a language model: 400,1200,80,200.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulation.real.open_loop import RequestSender, TimedAnswer, send_when_due
from simulation.shapes import Shape, moving
from solvers.llm.iteration import log_normal

MOST_STREAMS = 256
MOST_TOKENS = 4000  # of a prompt or an answer: together they fit into a context of 8192
MOST_CONNECTIONS = 32  # the limit of a service, unless set otherwise
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LoadSource:
    """One service, its path, and its rate."""

    service: str  # tenant/name
    path: str
    rate_per_second: float
    shape: Shape
    most_open: int = MOST_CONNECTIONS
    lengths: tuple[float, float, float, float] | None = None  # of a language model's requests

    @staticmethod
    def of(words: str) -> LoadSource:
        service, path, rate, *more = words.split("=")
        shape = moving(sum(map(ord, service)))
        if not more:
            return LoadSource(service, path, float(rate), shape)
        input_mean, input_p95, output_mean, output_p95 = map(float, more[0].split(","))
        lengths = (input_mean, input_p95, output_mean, output_p95)
        return LoadSource(service, path, float(rate), shape, MOST_STREAMS, lengths)


class LoadGenerator:
    """Poisson arrivals at a service; each request is sent when it is due, no matter what happened to earlier ones."""

    def __init__(self, host: str, port: int, source: LoadSource) -> None:
        self.source = source
        self.answered = self.failed = 0
        self._sender = RequestSender(
            host, port, self._count, connections=source.most_open, timeout_seconds=PATIENCE_SECONDS
        )
        self._head = (
            f"POST /{source.service}{source.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        )
        self._rng = random.Random(f"lengths {source.service}")  # noqa: S311

    async def run(self) -> None:
        """Sends for ever, once a first request got the expected answer."""
        while not self.answered:
            self._send(time.monotonic())
            await self._sender.settle(PATIENCE_SECONDS)
            await asyncio.sleep(max(0.5, 2 / self.source.rate_per_second))  # refusals count in its attainment
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
        lengths = self.source.lengths
        if lengths is None:
            body = b'{"inputs": [[1.0]]}'
        else:
            inputs, outputs = drawn_tokens(*lengths[:2], self._rng), drawn_tokens(*lengths[2:], self._rng)
            completion = {"prompt": [1] * inputs, "max_tokens": outputs, "stream": True}
            body = json.dumps({**completion, "stream_options": {"include_usage": True}}).encode()
        self._sender.send(due, f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _count(self, answer: TimedAnswer) -> None:
        self.answered += answer.status == 200
        self.failed += answer.status != 200


def drawn_tokens(mean: float, p95: float, rng: random.Random) -> int:
    """Draws a length from the log-normal distribution with this mean and 95th percentile."""
    return max(1, min(MOST_TOKENS, round(rng.lognormvariate(*log_normal(mean, p95)))))


async def send_all(address: str, sources: Sequence[LoadSource]) -> None:
    host, _, port = address.rpartition(":")
    await asyncio.gather(*(LoadGenerator(host, int(port), source).run() for source in sources))


def main() -> int:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(send_all(sys.argv[1], [LoadSource.of(words) for words in sys.argv[2:]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
