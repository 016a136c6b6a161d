"""The load of the testbed: Poisson arrivals at the gateway, and HetSev's spike every half an hour.

Usage: python -m simulation.testbed.load HOST:PORT WORLD.yaml [--begins S] [--hold S] [--period S]

Open loop and bounded: a service has at most as many open requests as two seconds of its spike send.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from simulation.real.load_generator import LoadGenerator, LoadSource
from simulation.shapes import Shape, spike

SPIKE_FACTOR = 4.0
RAMP_SECONDS = 30.0
MOST_REQUESTS_PER_SECOND = 300.0  # in total, at the height of the spike
OPEN_SECONDS = 2.0
PRINT_SECONDS = 10.0


def repeat(shape: Shape, period_seconds: float) -> Shape:
    return lambda seconds: shape(seconds % period_seconds)


def list_sources(world: str, shape: Shape) -> list[LoadSource]:
    """Returns every service at its declared rate times the shape; ValueError beyond the testbed's limit."""
    services = [document for document in yaml.safe_load_all(world) if document["kind"] == "Service"]
    made = []
    for service in services:
        name, rate = service["metadata"]["name"], float(service["spec"]["ratePerSecond"])
        path = f"/v1/models/{service['spec']['model']}:infer"
        most = max(8, round(rate * SPIKE_FACTOR * OPEN_SECONDS))
        made.append(LoadSource(f"{service['metadata']['tenant']}/{name}", path, rate, shape, most))
    peak = SPIKE_FACTOR * sum(source.rate_per_second for source in made)
    if peak > MOST_REQUESTS_PER_SECOND:
        raise ValueError(f"{peak:g} requests a second at the peak exceed the limit of {MOST_REQUESTS_PER_SECOND:g}")
    return made


async def run(address: str, sources: Sequence[LoadSource], alive: Path) -> None:
    host, _, port = address.rpartition(":")
    generators = [LoadGenerator(host, int(port), source) for source in sources]
    tasks = [asyncio.create_task(generator.run()) for generator in generators]
    began = time.monotonic()
    before = [(0, 0)] * len(generators)
    while True:
        await asyncio.sleep(PRINT_SECONDS)
        for task in tasks:
            if task.done():
                task.result()
        now = [(generator.answered, generator.failed) for generator in generators]
        parts = [
            f"{source.service} {(good - was_good + bad - was_bad) / PRINT_SECONDS:.1f}/s, {bad - was_bad} failed"
            for source, (good, bad), (was_good, was_bad) in zip(sources, now, before, strict=True)
        ]
        print(f"{time.monotonic() - began:.0f} s: {'; '.join(parts)}", flush=True)  # noqa: T201
        before = now
        alive.touch()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("world", type=Path)
    parser.add_argument("--begins", type=float, default=120.0, help="seconds before the first spike")
    parser.add_argument("--hold", type=float, default=600.0, help="seconds at its height")
    parser.add_argument("--period", type=float, default=1800.0, help="seconds from one spike to the next")
    parser.add_argument("--alive", type=Path, default=Path("/tmp/alive"), help="file to touch while it runs")  # noqa: S108
    args = parser.parse_args()
    shape = repeat(spike(args.begins, SPIKE_FACTOR, RAMP_SECONDS, args.hold), args.period)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(args.address, list_sources(args.world.read_text(), shape), args.alive))
    return 0


if __name__ == "__main__":
    sys.exit(main())
