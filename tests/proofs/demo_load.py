"""The load of a demo fleet: the same Poisson arrivals at each run, for so many seconds, with what became of each.

python -m tests.proofs.demo_load HOST:PORT WORLD.yaml SECONDS
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from simulation.real.load_generator import LoadGenerator, LoadSource
from simulation.real.open_loop import TimedAnswer
from simulation.shapes import steady
from simulation.testbed.load import list_sources


class KeptLoad(LoadGenerator):
    """Keeps latency and status of each request."""

    def __init__(self, host: str, port: int, source: LoadSource) -> None:
        super().__init__(host, port, source)
        self.answers: list[tuple[float, float, int]] = []

    def _count(self, answer: TimedAnswer) -> None:
        super()._count(answer)
        self.answers.append((answer.due, answer.latency_ms, answer.status))

    async def send_for(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.run(), seconds)
        await self._sender.settle(60.0)


async def send(
    address: str, sources: Sequence[LoadSource], seconds: float
) -> dict[str, list[tuple[float, float, int]]]:
    host, _, port = address.rpartition(":")
    loads = [KeptLoad(host, int(port), source) for source in sources]
    await asyncio.gather(*(load.send_for(seconds) for load in loads))
    return {load.source.service: load.answers for load in loads}


def main() -> int:
    address, world, seconds = sys.argv[1:]
    sources = list_sources(Path(world).read_text(), steady)
    print(json.dumps(asyncio.run(send(address, sources, float(seconds)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
