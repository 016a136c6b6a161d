"""Bodies made to hurt the real server: refused with the right 4xx, small, and while other clients hardly notice.

FAILURES 17 (numbers that are none), 21 (100 MB, 200,000 levels, 5,000 digits).
"""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from simulation.real.open_loop import percentile
from tests.support.caller import Caller, NoAnswer, calling
from tests.support.figures import own_rss_mb, rss_mb
from tests.support.patience import patience
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server
from tests.support.soak import scaled
from tests.support.world import declare_world, gpu_type

MB = 1_000_000
MIB = 1 << 20
GROWTH_MB = 100
UNLIMITED = {"GPUWRIGHT_RATE_PER_SECOND": "1000000", "GPUWRIGHT_RATE_BURST": "1000000"}
READS = scaled(2000, 200)
GUARD_MS = 30_000  # against a server that hangs; the figure itself is printed
ONE = "/api/v1/gputypes/hostile"
JSON, YAML = "application/json", "application/yaml"


def laughs(lines: int) -> bytes:
    """The billion laughs: each line names the one before it nine times."""
    text = ['a0: &a0 ["lol"]'] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, lines)]
    return "\n".join(text).encode()


def merges(lines: int) -> bytes:
    text = ["a0: &a0 {x: y}"] + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, lines)]
    return "\n".join(text).encode()


def with_number(number: bytes) -> bytes:
    return b'{"spec":{"memoryGib":%s,"smCount":80,"pricePerHour":1,"idleW":1,"maxW":2,"clocksMhz":[1]}}' % number


# Made when a test asks: together they are 100 MB.
Made = Callable[[], bytes]
BODIES: dict[str, tuple[str, Made, set[int]]] = {
    "json 200,000 deep": (JSON, lambda: b"[" * 200_000 + b"]" * 200_000, {413}),
    "json objects 200,000 deep": (JSON, lambda: b'{"a":' * 200_000 + b"1" + b"}" * 200_000, {413}),
    "json never closed": (JSON, lambda: b"[" * 900_000, {413, 422}),
    "yaml 200,000 deep": (YAML, lambda: b"[" * 200_000 + b"]" * 200_000, {413, 422}),
    "yaml lists in lists": (YAML, lambda: b"- " * 200_000 + b"x", {413, 422}),
    "billion laughs": (YAML, lambda: laughs(20), {413, 422}),
    "merge bomb": (YAML, lambda: merges(20), {413, 422}),
    "an alias of itself": (YAML, lambda: b"a: &a [*a, *a]\n", {413, 422}),
    "4 MB of empty lists, json": (JSON, lambda: b"[" + b"[]," * 1_300_000 + b"[]]", {413}),
    "4 MB of empty lists, yaml": (YAML, lambda: b"[" + b"[]," * 1_300_000 + b"[]]", {413}),
    "a long key": (JSON, lambda: b'{"' + b"k" * 900_000 + b'":1}', {413, 422}),
    "a million small keys": (JSON, lambda: b"{" + b",".join(b'"%d":0' % n for n in range(100_001)) + b"}", {413, 422}),
    "invalid utf-8": (JSON, lambda: b'{"metadata":{"name":"\xff\xfe\xed\xa0\x80"}}', {422}),
    "invalid utf-8 in yaml": (YAML, lambda: b"metadata: {name: '\xc3\x28'}", {422}),
    "invalid utf-8 at the end of a megabyte": (JSON, lambda: b'{"a":"' + b"x" * 900_000 + b'\xff"}', {422}),
    "a surrogate alone": (JSON, lambda: b'{"metadata":{"name":"\\ud800"}}', {422}),
    "NUL": (JSON, lambda: b'{"metadata":{"name":"a\\u0000b"}}', {422}),
    "5,000 digits": (JSON, lambda: with_number(b"9" * 5000), {413, 422}),
    "5,000 digits in yaml": (YAML, lambda: with_number(b"9" * 5000), {413, 422}),
    "5,000 digits after the point": (JSON, lambda: with_number(b"0." + b"9" * 5000), {413, 422}),
    "1e308": (JSON, lambda: with_number(b"1e308"), {422}),
    "1e999": (JSON, lambda: with_number(b"1e999"), {422}),
    "NaN": (JSON, lambda: with_number(b"NaN"), {422}),
    "-Infinity": (JSON, lambda: with_number(b"-Infinity"), {422}),
    ".nan in yaml": (YAML, lambda: with_number(b".nan"), {422}),
    ".inf in yaml": (YAML, lambda: with_number(b".inf"), {422}),
    "an exponent of 5,000 digits": (JSON, lambda: with_number(b"1e" + b"9" * 5000), {413, 422}),
    "digits in base 60": (YAML, lambda: with_number(b"1:30:30"), {422}),
    "a tag that makes objects": (YAML, lambda: b"!!python/object/apply:os.system ['true']", {422}),
}
WRONG = b'{"kind":"Tenannt","metadata":{"name":"A"}},'
LEGAL: dict[str, tuple[str, Made]] = {  # of legal size, and each as much work as its size allows
    "16 MiB of one text": (JSON, lambda: b'["' + b"x" * (16 * MIB - 4) + b'"]'),
    "16 MiB of empty lists": (JSON, lambda: b"[" + b"[]," * (16 * MIB // 3 - 2) + b"[]]"),
    "16 MiB of empty lists in yaml": (YAML, lambda: b"[" + b"[]," * (16 * MIB // 3 - 2) + b"[]]"),
    "16 MiB of yaml words": (YAML, lambda: b"- word\n" * (16 * MIB // 7)),
    "12 MiB of faulty manifests": (JSON, lambda: b"[" + WRONG * 290_000 + b"{}]"),
    "16 MiB of spaces": (JSON, lambda: b" " * (16 * MIB)),
    "laughs": (YAML, lambda: laughs(300)),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", **UNLIMITED) as running:
        declare_world(running)
        for _ in range(2):  # what honest large bodies take is not counted: two readers stand ready afterwards
            many = [gpu_type(f"honest-{n}") for n in range(600)]
            assert running.request("POST", "/api/v1/apply?dryRun=true", many).status == 200
        yield running
    postgres.drop(url)


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_case_21_a_hostile_body_is_refused_by_apply_and_by_put(server: RunningServer, name: str) -> None:
    media, made, allowed = BODIES[name]
    body = made()
    before = rss_mb(server.process.pid)
    for method, path in (("POST", "/api/v1/apply"), ("PUT", ONE)):
        statuses = allowed | ({413} if len(body) > MIB else set())
        with calling(server.port, server.admin_token) as caller:
            reply = caller.ask(method, path, body, {"Content-Type": media})
        assert reply.status in statuses, reply.text[:500]
        assert reply.headers["content-type"] == "application/problem+json"
        assert len(reply.text) < 1_000_000
    assert rss_mb(server.process.pid) - before < GROWTH_MB
    assert server.request("GET", ONE).status == 404


@pytest.mark.slow
def test_a_gzip_bomb_is_not_opened(server: RunningServer) -> None:
    bomb = gzip.compress(bytes(100 * MB))
    before = rss_mb(server.process.pid)
    for path in ("/api/v1/apply", "/api/v1/tokens"):
        headers = {"Content-Type": JSON, "Content-Encoding": "gzip"}
        assert server.request("POST", path, bomb, headers=headers).status == 415
        assert server.request("POST", path, bomb, headers={"Content-Type": JSON}).status in (400, 422)
    assert rss_mb(server.process.pid) - before < GROWTH_MB


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/v1/apply", ONE, "/api/v1/tokens", "/api/v1/join"])
def test_case_21_100_mb_are_refused_before_they_are_taken(server: RunningServer, path: str) -> None:
    before = rss_mb(server.process.pid)
    method = b"PUT" if path == ONE else b"POST"
    for framing in (b"Content-Length: %d\r\n\r\n" % (100 * MB), b"Transfer-Encoding: chunked\r\n\r\n"):
        piece = b"x" * MIB if b"Length" in framing else b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)
        with socket.create_connection(("127.0.0.1", server.port), timeout=patience()) as raw:
            token = server.admin_token.encode()
            raw.sendall(
                b"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s"
                % (method, path.encode(), token, framing)
            )
            with suppress(OSError):
                for _ in range(100):
                    raw.sendall(piece)
            assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    assert rss_mb(server.process.pid) - before < GROWTH_MB


@pytest.mark.slow
@pytest.mark.parametrize("name", ["16 MiB of empty lists", "16 MiB of one text"])
def test_a_refused_body_is_not_kept_until_the_next_garbage_collection(server: RunningServer, name: str) -> None:
    """Each on a connection of its own: objects that hold each other would hold 16 MiB with them."""
    media, made = LEGAL[name]
    body = made()
    server.request("POST", "/api/v1/apply", body, headers={"Content-Type": media})
    before = own_rss_mb(server.process.pid)
    for _ in range(10):
        server.request("POST", "/api/v1/apply", body, headers={"Content-Type": media})
    assert own_rss_mb(server.process.pid) - before < 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_while_hostile_bodies_of_legal_size_arrive_other_clients_are_answered(server: RunningServer) -> None:
    """FAILURES 21: two clients send bodies of up to 16 MB without pause, another reads."""
    over = threading.Event()
    bodies = {name: (media, made()) for name, (media, made) in LEGAL.items()}
    statuses: dict[str, Counter[int]] = {name: Counter() for name in bodies}
    flooders = [server.token("operator"), server.token("operator")]
    before = rss_mb(server.process.pid)

    def flood(token: str) -> None:
        caller = Caller(server.port, token, timeout_seconds=patience())
        names = list(bodies)
        number = 3 * flooders.index(token)
        while not over.is_set():
            name = names[number % len(names)]
            number += 1
            media, body = bodies[name]
            try:
                statuses[name][caller.ask("POST", "/api/v1/apply", body, {"Content-Type": media}).status] += 1
            except NoAnswer:
                statuses[name][0] += 1

    threads = [threading.Thread(target=flood, args=(token,)) for token in flooders]
    for thread in threads:
        thread.start()
    reader = Caller(server.port, server.admin_token)
    times_ms: list[float] = []
    most = 0.0
    path = "/api/v1/services/shop/search"
    while len(times_ms) < READS or not all(statuses.values()):
        time.sleep(0.02)
        begun = time.perf_counter()
        assert reader.ask("GET", path).status == 200
        times_ms.append((time.perf_counter() - begun) * 1000)
        if len(times_ms) % 10 == 0:
            most = max(most, rss_mb(server.process.pid))
    over.set()
    for thread in threads:
        thread.join()
    print(
        f"\n{sum(seen.total() for seen in statuses.values())} hostile bodies meanwhile, "
        f"{ {name: dict(seen) for name, seen in statuses.items()} }; {len(times_ms)} GETs: "
        f"p50 {percentile(times_ms, 50):.1f} ms, p99 {percentile(times_ms, 99):.1f} ms, worst {max(times_ms):.1f} ms; "
        f"memory {before:.0f} MB, at most {most:.0f} MB"
    )
    for name, seen in statuses.items():
        assert set(seen) <= {413, 422, 503}, name
    assert percentile(times_ms, 99) < GUARD_MS
