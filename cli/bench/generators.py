"""Runs the processes that load a server: as many as the files that one of them may open make necessary."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cli.exits import Failed

AGENTS_EACH = 8000  # an agent holds two connections, and a process may often open 20,000 files
Found = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Generator:
    """A process that plays some of the agents."""

    process: subprocess.Popen[str]
    result: Path

    def await_warm(self) -> None:
        """Returns once all its agents have reported and it begins to measure; raises Failed."""
        assert self.process.stderr
        if (said := self.process.stderr.readline().strip()) != "warm":
            raise Failed(f"the load generator failed: {said}\n{self.process.communicate()[1][-2000:]}", 5)

    def collect(self) -> Found:
        """Returns what it measured, once it has ended; raises Failed."""
        _, complaint = self.process.communicate()
        if self.process.returncode:
            raise Failed(f"the load generator ended with {self.process.returncode}: {complaint[-2000:]}", 5)
        found: Found = json.loads(self.result.read_text())
        return found


@contextmanager
def generating(order: Mapping[str, Any], nice: int) -> Iterator[Generator]:
    """Yields a process that does what the order says, and ends it afterwards."""
    command = [*(["nice", "-n", str(nice)] if nice else []), sys.executable, "-m", "cli.bench.load"]
    with TemporaryDirectory(prefix="gpuwright-bench-") as folder:
        result = Path(folder) / "result.json"
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdin
        try:
            process.stdin.write(json.dumps({**order, "result": str(result)}) + "\n")
            process.stdin.flush()
            yield Generator(process, result)
        finally:
            process.kill()
            process.wait()


def split_order(order: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the order of each process: its agents, and their part of the rate. The first one kills."""
    tokens = order["tokens"]
    parts = -(-len(tokens) // AGENTS_EACH)
    for part in range(parts):
        first, end = part * len(tokens) // parts, (part + 1) * len(tokens) // parts
        mine = {"tokens": tokens[first:end], "first": first, "rate": order["rate"] * (end - first) / len(tokens)}
        yield {**order, **mine, "killed": 0 if part else order["killed"]}


def merge(found: Sequence[Found]) -> Found:
    """Returns what all processes measured together."""
    killed_at = max(part["killed_at"] for part in found)
    return {
        "latencies_ms": [latency for part in found for latency in part["latencies_ms"]],
        "decisions": [decision for part in found for decision in part["decisions"]],
        "errors": sum((Counter(part["errors"]) for part in found), Counter()),
        "seconds": max(part["seconds"] for part in found),
        "cpu_seconds": sum(part["cpu_seconds"] for part in found),
        "back_seconds": max(0.0, *(part["back_at"] - killed_at for part in found)) if killed_at else 0.0,
        "moved": sum(part["moved"] for part in found),
    }
