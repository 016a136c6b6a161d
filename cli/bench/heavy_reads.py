"""Measures how soon node reports are answered while a viewer asks for the heaviest reads again and again."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from cli.bench.api import NICE, ApiLoad, declare_nodes, load
from cli.bench.reports import node_name
from cli.bench.system import Say, System, make_tokens, own_system
from simulation.past_month import store_past_month

READS = ("/api/v1/slo", "/api/v1/overview", "/")


@dataclass(slots=True)
class ReadCounts:
    """The answers to the reads, by path and status."""

    rows: list[tuple[str, int, int]] = field(default_factory=list)


def measure(order: ApiLoad, services: int, connections: int, say: Say) -> dict[str, Any]:
    """Measures the same load twice on a system of its own: alone, and with the reads."""
    with own_system(say) as system:
        tokens = declare_nodes(system, order.agents, say)
        say(f"storing {services} services with a month of loads, and a plan")
        nodes = [node_name(number) for number in range(order.agents)]
        store_past_month(system.database_url, nodes, services)
        system.checkpoint()  # else Postgres writes the month to disk while reports are measured
        quiet = load(system, tokens, order, say, nice=NICE)
        say(f"reading {', '.join(READS)} over {connections} connections each")
        with _reading(system, connections) as counts:
            found = load(system, tokens, order, say, nice=NICE)
    answered = {path: sum(count for name, status, count in counts.rows if name == path and status == 200)
                for path in READS}  # fmt: skip
    refused = sum(count for _, status, count in counts.rows if status != 200)
    return {
        **found, "quiet_p50_ms": quiet["p50_ms"], "quiet_p99_ms": quiet["p99_ms"],
        **{f"reads of {path}": count for path, count in answered.items()}, "reads_refused": refused,
    }  # fmt: skip


@contextmanager
def _reading(system: System, connections: int) -> Iterator[ReadCounts]:
    """Reads in a process of its own while the block runs."""
    (viewer,) = make_tokens(system.database_url, [("viewer", "")])
    bearer = {"Authorization": f"Bearer {viewer}"}
    reads = {path: bearer if path != "/" else {"Cookie": _cookie(system, viewer)} for path in READS}
    counts = ReadCounts()
    process = subprocess.Popen(
        ["nice", "-n", str(NICE), sys.executable, "-m", "cli.bench.viewer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    order = {"host": system.host, "port": system.port, "connections": connections, "reads": reads}
    try:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        threading.Event().wait(1.0)  # the first reads are under way
        yield counts
        answer, _ = process.communicate()
        counts.rows = [(path, status, count) for path, status, count in json.loads(answer)]
    finally:
        process.kill()
        process.wait()


def _cookie(system: System, token: str) -> str:
    """Opens a session of the console."""
    connection = http.client.HTTPConnection(system.host, system.port, timeout=60)
    try:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/sign-in", urlencode({"token": token}), headers)
        return str(connection.getresponse().headers["Set-Cookie"]).partition(";")[0]
    finally:
        connection.close()
