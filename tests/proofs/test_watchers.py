"""Two replicas on one database: every watcher sees every committed write once and in order, whatever happens."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.proofs.watch_latency import UNLIMITED, measure
from tests.support.follower import Follower
from tests.support.patience import patience, until
from tests.support.postgres import DatabaseServer, at_port
from tests.support.server import RunningServer, running_server
from tests.support.soak import scaled
from tests.support.world import gpu_type, model, profile, service

pytestmark = pytest.mark.slow

SEED = 50
WRITERS = scaled(50, 20)
WATCHERS = 20
WRITES_OF_EACH = scaled(60, 6)
LATENCY_WRITES = scaled(400, 60)
GUARD_MS = 30_000  # against a watch that hangs; the figure itself is printed


@dataclass(frozen=True, slots=True)
class Replicas:
    """Two servers on one database, reached directly or through a pooler; `direct_url` always goes straight there."""

    one: RunningServer
    other: RunningServer
    direct_url: str


@pytest.fixture(params=["direct", "pgbouncer"])
def replicas(request: pytest.FixtureRequest, postgres: DatabaseServer) -> Iterator[Replicas]:
    """FAILURES 3, for the part of it that exists: behind a pooler in transaction mode."""
    url = postgres.create()
    settings = dict(UNLIMITED)
    reached = url
    if request.param == "direct":
        settings["GPUWRIGHT_DATABASE_DIRECT"] = "1"
    else:
        reached = at_port(url, request.getfixturevalue("pooler_port"))
    with running_server(reached, **settings) as one, running_server(reached, **settings) as other:
        yield Replicas(one, other, url)
    postgres.drop(url)


@pytest.mark.timeout(1800)
def test_every_watcher_sees_every_committed_write_once_and_in_order(replicas: Replicas) -> None:
    token = replicas.one.admin_token
    ports = [replicas.one.port, replicas.other.port]
    kinds = ["", "&kinds=tenants", "&kinds=services,models", "&tenant=w7"]
    followers = [
        Follower(ports, token, SEED + n, patience_events=10, query=kinds[n % len(kinds)]) for n in range(WATCHERS)
    ]
    begun = time.monotonic()
    accidents: list[str] = []
    writers = [threading.Thread(target=write, args=(ports, token, n, accidents)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    cut_at_random(followers, writers)
    with psycopg.connect(replicas.direct_url) as connection:
        settled(connection)
        changes = connection.execute("SELECT version, action, kind, tenant FROM change ORDER BY version").fetchall()
    wanted = {query: [(v, action) for v, action, kind, of in changes if concerns(query, kind, of)] for query in kinds}
    for follower in followers:
        until(lambda follower=follower: follower.last >= wanted[follower.query][-1][0], "a watcher")  # type: ignore[misc]
        follower.stop()
    print(
        f"\n{len(changes)} changes by {WRITERS} writers in {time.monotonic() - begun:.0f} s, seed {SEED}; "
        f"{WATCHERS} watchers connected {sum(f.connections for f in followers)} times"
    )
    assert accidents == []
    for follower in followers:
        assert follower.refused == []
        assert follower.seen == wanted[follower.query]


@pytest.mark.timeout(600)
def test_a_write_on_a_replica_soon_appears_on_the_other(replicas: Replicas, request: pytest.FixtureRequest) -> None:
    latency = measure(replicas.one, replicas.other, LATENCY_WRITES)
    print(f"\n{request.node.callspec.id}: {latency}")
    assert latency.p99_ms < GUARD_MS


def concerns(query: str, kind: str, tenant: str) -> bool:
    match query:
        case "&kinds=tenants":
            return kind == "Tenant"
        case "&kinds=services,models":
            return kind in ("Service", "Model")
        case "&tenant=w7":
            return tenant == "w7"
    return True


def cut_at_random(followers: list[Follower], writers: list[threading.Thread]) -> None:
    rng = random.Random(SEED)
    while any(writer.is_alive() for writer in writers):
        rng.choice(followers).cut()
        time.sleep(rng.uniform(0, 0.2))


def settled(connection: psycopg.Connection[Any]) -> None:
    """What the writers hung up on has been done or dropped."""
    latest = [-1]

    def still() -> bool:
        latest.append(connection.execute("SELECT max(version) FROM change").fetchall()[0][0])
        connection.commit()
        time.sleep(1)
        return latest[-1] == latest[-2]

    until(still, "writes")


def write(ports: list[int], token: str, number: int, accidents: list[str]) -> None:
    """Writes that succeed, that fail, that only ask, and that are cut off at every point of the request."""
    rng = random.Random(SEED * 1000 + number)
    for count in range(WRITES_OF_EACH):
        time.sleep(rng.expovariate(1 / 0.1))
        method, path, body = request_of(rng, number, count)
        data = json.dumps(body).encode() if body is not None else b""
        port = rng.choice(ports)
        if rng.random() < 0.25:
            cut_off(rng, port, token, method, path, data)
            continue
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, data, headers)
            status = connection.getresponse().status
            if status >= 500:
                accidents.append(f"{method} {path}: {status}")
        finally:
            connection.close()


def request_of(rng: random.Random, number: int, count: int) -> tuple[str, str, object]:
    tenant = f"/api/v1/tenants/w{number}-{rng.randint(0, 2)}"
    own = f"w{number}"
    group = [service("s", own, own), profile(own, own), model(own), gpu_type(own)]
    for document in group:
        document["metadata"]["labels"] = {"count": str(count)}
    return rng.choice(
        [
            ("PUT", tenant, {"spec": {"limit": {"gpus": count + 1}}}),
            ("PUT", tenant, {"spec": {"limit": {"gpus": count + 1}}}),
            ("DELETE", tenant, None),
            ("POST", "/api/v1/apply", group),
            ("POST", "/api/v1/apply?dryRun=true", group),
            ("PUT", f"{tenant}?dryRun=true", {"spec": {"limit": {"gpus": 500}}}),
            ("PUT", tenant, {"spec": {"limit": {"gpus": -1}}}),  # refused
            ("POST", "/api/v1/apply", [*group, service("broken", own, "no-such-model")]),  # refused whole
        ]
    )


def cut_off(rng: random.Random, port: int, token: str, method: str, path: str, data: bytes) -> None:
    """Send some of the request, perhaps slowly, perhaps all of it, and hang up."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    whole = head.encode() + data
    cut = len(whole) if rng.random() < 0.5 else rng.randrange(len(whole))
    middle = rng.randrange(cut + 1)
    with socket.create_connection(("127.0.0.1", port), timeout=patience()) as raw:
        raw.sendall(whole[:middle])
        time.sleep(rng.uniform(0, 0.2))
        raw.sendall(whole[middle:cut])
        time.sleep(rng.choice([0, 0, 0.01]))
