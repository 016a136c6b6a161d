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

import msgspec
from sqlalchemy import Connection, text

from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import plans
from app.store.plans.plans import PlanDraft
from cli.bench.api import NICE, ApiLoad, declare_nodes, load
from cli.bench.reports import node_name
from cli.bench.system import Say, System, make_tokens, own_system
from cli.exits import Failed
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance

TENANTS = 20
DAYS = 30
RECENT_HOURS = 2
BUCKET_SECONDS = 10
READS = ("/api/v1/slo", "/api/v1/overview", "/")
# Services with a month of hours and two hours of buckets each, as a planner of such a fleet leaves them.
WORLD = f"""
    INSERT INTO object
    SELECT gen_random_uuid(), 'Service', 'tenant-' || n % {TENANTS}, 'search-' || n, '{{}}',
           '{{"model": "resnet50", "slo": {{"latencyMs": 80, "percentile": 98}}, "ratePerSecond": 90}}', '{{}}', 1, n,
           NULL, '{{}}', now(), now()
    FROM generate_series(1, CAST(:services AS int)) AS n;
    INSERT INTO service_load_hour
    SELECT tenant, name, date_trunc('hour', now()) - hour * interval '1 hour', 3600, 324000, 324000, 10, 500
    FROM object, generate_series({RECENT_HOURS}, {24 * DAYS}) AS hour WHERE kind = 'Service';
    INSERT INTO service_load (tenant, service, at, seconds, requests, answers)
    SELECT tenant, name, now() - n * interval '{BUCKET_SECONDS} seconds', {BUCKET_SECONDS}, 900, 900
    FROM object, generate_series(1, {RECENT_HOURS * 3600 // BUCKET_SECONDS}) AS n WHERE kind = 'Service';
    INSERT INTO event (at, last_at, reason, severity, kind, tenant, name, message, fingerprint)
    SELECT now() - n * interval '1 minute', now() - n * interval '1 minute', 'unserved', 'warning', 'Service',
           'tenant-' || n % {TENANTS}, 'search-' || n, 'a request a second', decode(lpad(to_hex(n), 32, '0'), 'hex')
    FROM generate_series(10000, 1, -1) AS n
"""  # noqa: S608 (constants)
# As of a plan whose snapshot is no longer stored: prices are left out.
NO_SNAPSHOT = "UPDATE plan SET snapshot = '[\"00\"]'"


@dataclass(slots=True)
class ReadCounts:
    """The answers to the reads, by path and status."""

    rows: list[tuple[str, int, int]] = field(default_factory=list)


def measure(order: ApiLoad, services: int, connections: int, say: Say) -> dict[str, Any]:
    """Measures the same load twice on a system of its own: alone, and with the reads."""
    with own_system(say) as system:
        tokens = declare_nodes(system, order.agents, say)
        say(f"storing {services} services with a month of loads, and a plan")
        _fill(system, order.agents, services)
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


def _fill(system: System, agents: int, services: int) -> None:
    database = Database(system.database_url, pool_size=1, direct=True)
    try:
        epoch = database.write(lambda connection: lease.take(connection, "bench", 1e6))
        if epoch is None:
            raise Failed("another leader holds the lease")

        def fill(connection: Connection) -> None:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            for sql in WORLD.split(";"):
                connection.execute(text(sql), {"services": services} if ":services" in sql else {})
            plans.record(connection, epoch, _plan(agents, services))
            connection.execute(text(NO_SNAPSHOT))

        database.write(fill)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    finally:
        database.close()


def _plan(agents: int, services: int) -> PlanDraft:
    names = [f"tenant-{n % TENANTS}/search-{n}" for n in range(1, services + 1)]
    instances = tuple(
        Instance(f"{name}/1", name, node_name(at % agents), at // agents % 8, "fp16", 8, 5.0, 50, 4.0, 1410.0, 90.0)
        for at, name in enumerate(names)
    )
    body = msgspec.json.encode(Plan(instances))
    return PlanDraft("full", "done", body, b"{}", [], services=names)


@contextmanager
def _reading(system: System, connections: int) -> Iterator[ReadCounts]:
    """Reads in a process of its own while the block runs."""
    (viewer,) = make_tokens(system.database_url, [("viewer", "")])
    bearer = {"Authorization": f"Bearer {viewer}"}
    reads = {path: bearer if path != "/" else {"Cookie": _cookie(system, viewer)} for path in READS}
    counts = ReadCounts()
    process = subprocess.Popen(
        ["nice", "-n", str(NICE), sys.executable, "-m", "cli.bench.hammer"],
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
