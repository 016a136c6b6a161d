"""A steady open-loop load in a process of its own: keep-alive connections, every request with status and latency.

    with steady_load(port, "/shop/search/predict", rate_per_second=200) as load:
        ...                      # whatever must not cost a request
    outcome = load.stop()
    assert outcome.failed == ()

Requests are sent, and their latency counts, as `simulation.real.open_loop` says.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from simulation.real.open_loop import RequestSender, TimedAnswer, percentile, send_when_due
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: when it was due, how long it took, and how it was answered."""

    at: float  # time.monotonic()
    latency_ms: float
    status: int  # 0: no answer
    problem: str = ""  # why there was none

    @property
    def failed(self) -> bool:
        return not 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was sent."""

    samples: tuple[Sample, ...]

    @property
    def failed(self) -> tuple[Sample, ...]:
        return tuple(sample for sample in self.samples if sample.failed)

    def between(self, start: float, end: float) -> Outcome:
        """What was due from `start` to `end`, both time.monotonic()."""
        return Outcome(tuple(sample for sample in self.samples if start <= sample.at < end))

    def percentile_ms(self, percent: float) -> float:
        """The latency that this share of the answered requests kept; 0 when there were none."""
        return percentile([sample.latency_ms for sample in self.samples if sample.status], percent)


class Load:
    """The running process. `stop` may be called once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_answers(self, number: int) -> None:
        """Waits until so many more requests are answered."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "answered\n", "the load has ended"

    def stop(self) -> Outcome:
        """Send no more, wait for what is open, and tell."""
        said, _ = self._process.communicate(timeout=patience())  # closes its input, which ends it
        assert self._process.returncode == 0, f"the load ended with {self._process.returncode}"
        return Outcome(tuple(Sample(*row) for row in json.loads(said)))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@contextmanager
def steady_load(
    port: int,
    path: str = "/",
    *,
    rate_per_second: float,
    connections: int = 16,
    method: str = "GET",
    body: str = "",
    timeout_seconds: float = 30.0,
    host: str = "127.0.0.1",
) -> Iterator[Load]:
    """Load from when the block is entered, the first answer awaited, until `stop`; it dies with its parent."""
    words = ["--port", port, "--path", path, "--rate", rate_per_second, "--connections", connections]
    words += ["--method", method, "--body", body, "--timeout", timeout_seconds, "--host", host]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.load", *map(str, words)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    load = Load(process)
    try:
        load.await_answers(1)
        yield load
    finally:
        load.end()


# The process


class _Steady:
    """Sends at a steady rate until its input ends, and waits for what is open."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        body = args.body.encode()
        head = f"{args.method} {args.path} HTTP/1.1\r\nHost: {args.host}:{args.port}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.request = head.encode() + b"\r\n" + body
        self.samples: list[tuple[float, float, int, str]] = []
        self.told_at = 0  # answers
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        args = self.args
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self.hear)
        sender = RequestSender(
            args.host, args.port, self.answered, connections=args.connections, timeout_seconds=args.timeout
        )
        moments = count(time.monotonic(), 1 / args.rate)
        sending = asyncio.create_task(send_when_due(moments, lambda due: sender.send(due, self.request)))
        await self.stopping.wait()
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        sending.cancel()
        await sender.settle(args.timeout + 10)
        assert not sender.open_requests

    def hear(self) -> None:
        """Takes a line, the number of answers to wait for; the end of the input ends the load."""
        if line := sys.stdin.readline():
            self.told_at = len(self.samples) + int(line)
        else:
            self.stopping.set()

    def answered(self, answer: TimedAnswer) -> None:
        self.samples.append((answer.due, answer.latency_ms, answer.status, answer.problem))
        if len(self.samples) == self.told_at:
            sys.stdout.write("answered\n")
            sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in (("port", int), ("rate", float), ("connections", int), ("timeout", float)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    for name in ("host", "path", "method", "body"):
        parser.add_argument(f"--{name}", required=True)
    load = _Steady(parser.parse_args())
    gc.disable()  # a pause of ours would be measured as one of theirs
    asyncio.run(load.run())
    json.dump(load.samples, sys.stdout)


if __name__ == "__main__":
    main()
