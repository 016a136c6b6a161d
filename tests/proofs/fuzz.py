"""A raw fuzzer for the whole API: seeded, over a few kept connections; no answer may be a 5xx.

`python -m tests.proofs.fuzz --requests 100000`
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.proofs.hostile import MEDIA, Hostile, written
from tests.support.figures import own_rss_mb, rss_mb
from tests.support.postgres import postgres_of_the_wheel
from tests.support.server import RunningServer, running_server
from tests.support.world import declare_world

SEED = 1
CONNECTIONS = 6
UNLIMITED = {"GPUWRIGHT_RATE_PER_SECOND": "1000000", "GPUWRIGHT_RATE_BURST": "1000000"}
ODD_METHODS = ["HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "GET", "BREW", "get"]
ODD_HEADERS = ["If-Match", "Idempotency-Key", "X-Request-Id", "Last-Event-ID", "Accept", "traceparent"]
LONG = re.compile(r"/(watch|assignment)$")
WAIT_SECONDS = 60.0  # a hang guard
GLIMPSE_SECONDS = 0.3  # of a watch or a long poll


class Route(NamedTuple):
    """An operation of the document, and the parameters of its query."""

    method: str
    template: str
    known: tuple[str, ...]


@dataclass
class Findings:
    """What came back; `faults` holds what must not be."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    unanswered: int = 0  # the server ended the connection instead: allowed after a refused head only

    def add(self, other: Findings) -> None:
        self.requests += other.requests
        self.statuses += other.statuses
        self.faults += other.faults
        self.unanswered += other.unanswered


class Fuzzer:
    """One connection's worth of requests."""

    def __init__(self, port: int, tokens: Sequence[str], routes: Sequence[Route], seed: int) -> None:
        self.findings = Findings()
        self._port = port
        self._tokens = tokens
        self._routes = routes
        self._hostile = Hostile(seed)
        self._rng = self._hostile.rng
        self._socket: socket.socket | None = None
        self._rest = b""

    def run(self, count: int) -> None:
        for _ in range(count):
            method, path, request = self.request()
            self.findings.requests += 1
            try:
                self._exchange(method, path, request)
            except TimeoutError:
                self._close()
                if not LONG.search(path.partition("?")[0]):
                    self._fault(request, "no answer within a minute")
            except OSError:
                self._close()
                self.findings.unanswered += 1
        self._close()

    def request(self) -> tuple[str, str, bytes]:
        rng, hostile = self._rng, self._hostile
        method, template, known = rng.choice(self._routes)
        if rng.random() < 0.05:
            method = rng.choice(ODD_METHODS)
        path = re.sub(r"\{[^}]*\}", lambda _: hostile.name(), template)
        if rng.random() < 0.02:
            path += rng.choice(["/", "//", "/x", "?", "%2F", "/.."])
        if LONG.search(path) and rng.random() < 0.97:
            once = rng.choice(["-1", "x", "99999999999"])
            path += "?waitSeconds=0" if "waitSeconds" in known else f"?resourceVersion={once}"  # answered at once
        elif "?" not in path:
            path += hostile.query(known)
        media, body = self._body(method, template, path)
        lines = [f"{method} {path} HTTP/1.1", "Host: x"]
        token = rng.choice(self._tokens if rng.random() < 0.3 else self._tokens[:1])
        if rng.random() < 0.005:  # more, and the address is told to slow down
            token = rng.choice(["", "gw_nobody_nothing", "gw_é", "x" * 500])
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if media:
            lines.append(f"Content-Type: {media}")
        lines += [f"{name}: {hostile.text()}" for name in ODD_HEADERS if rng.random() < 0.06]
        if rng.random() < 0.02:
            lines.append("Content-Encoding: gzip")
        if body and rng.random() < 0.1:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        elif body or method in ("PUT", "POST", "PATCH"):
            lines.append(f"Content-Length: {len(body)}")
        return method, path, "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body

    def _body(self, method: str, template: str, path: str) -> tuple[str, bytes]:
        rng, hostile = self._rng, self._hostile
        if method in ("GET", "HEAD", "DELETE") and rng.random() < 0.95:
            return "", b""
        if template.endswith(("tokens", "/join")) and rng.random() < 0.7:
            form: Any = {"scope": "viewer", "expiresInSeconds": 60, "token": "gwj_x_y", "node": "n1", "gpus": 4}
            return "application/json", hostile.json() if rng.random() < 0.3 else written(hostile.spoiled(form))
        if template.endswith("/report") and rng.random() < 0.7:
            report: Any = {
                "contract": 1, "node": "node-1", "incarnation": 1, "sequence": rng.randint(0, 99),
                "at": "2026-11-20T10:30:00Z", "minute": "2026-11-20T10:30:00Z", "gpus": [{"index": 0, "powerMeanW": 3}],
            }  # fmt: skip
            return "application/json", written(hostile.spoiled(report))
        if method == "PATCH" and rng.random() < 0.8:
            document = hostile.fitting(path)
            patch = {"spec": document["spec"]} if isinstance(document, dict) and "spec" in document else document
            return "application/merge-patch+json", hostile.json() if rng.random() < 0.2 else written(patch)
        if method == "PUT" and rng.random() < 0.6:
            return "application/json", written(hostile.fitting(path))
        match rng.randrange(8):
            case 0:
                return rng.choice(MEDIA), rng.choice([hostile.json, hostile.yaml, hostile.files])()
            case 1 if template.endswith("/apply"):
                return MEDIA[3], hostile.files()
            case 1 | 2 | 3:
                return "application/yaml", hostile.yaml()
        return "application/json", hostile.json()

    def _exchange(self, method: str, path: str, request: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_SECONDS)
            self._rest = b""
        self._socket.settimeout(GLIMPSE_SECONDS if LONG.search(path.partition("?")[0]) else WAIT_SECONDS)
        with suppress(OSError):  # it may have answered before it had all
            self._socket.sendall(request)
        head = self._until(b"\r\n\r\n").decode("latin-1")
        status = int(head.split(" ", 2)[1])
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = b""
        if method != "HEAD" and status not in (204, 304):
            if "content-length" not in headers:
                self._close()  # an open watch
                self.findings.statuses[status] += 1
                return
            body = self._take(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self._close()
        self.findings.statuses[status] += 1
        self._judge(method, status, headers, body, request)

    def _judge(self, method: str, status: int, headers: dict[str, str], body: bytes, request: bytes) -> None:
        if status >= 500:
            self._fault(request, f"{status}: {body[:300]!r}")
        elif status >= 400 and method != "HEAD":
            if headers.get("content-type") != "application/problem+json":
                self._fault(request, f"{status} as {headers.get('content-type')}: {body[:100]!r}")
            elif json.loads(body)["status"] != status:
                self._fault(request, f"{status} says {body[:200]!r}")
        elif status == 200 and headers.get("content-type") == "application/json":
            json.loads(body)

    def _fault(self, request: bytes, what: str) -> None:
        self.findings.faults.append(f"{what}\n  {request[:1500]!r}")

    def _until(self, end: bytes) -> bytes:
        while end not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(end)
        return head

    def _take(self, length: int) -> bytes:
        while len(self._rest) < length:
            self._more()
        body, self._rest = self._rest[:length], self._rest[length:]
        return body

    def _more(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionResetError
        self._rest += data

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def routes_of(server: RunningServer) -> list[Route]:
    """Every operation of the served document, with the parameters that it takes in its query."""
    paths = server.request("GET", "/openapi.json").json["paths"]
    return [
        Route(method.upper(), path, tuple(p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"))
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]


def tokens_of(server: RunningServer) -> list[str]:
    """One of each kind, used once: an address that guesses tokens is refused with those not known to be good."""
    tokens = [
        server.token("admin"),
        server.token("operator"),
        server.token("operator", tenant="shop"),
        server.token("viewer", tenant="lab"),
        server.token("node", node="node-1"),
    ]
    for token in tokens:
        assert server.request("GET", "/api/v1/whoami", token=token).status == 200
    return tokens


def fuzz(server: RunningServer, tokens: Sequence[str], requests: int, seed: int) -> Findings:
    """So many requests over a few connections at once; the world is declared before."""
    fuzzers = [Fuzzer(server.port, tokens, routes_of(server), seed * 100 + n) for n in range(CONNECTIONS)]
    threads = [threading.Thread(target=fuzzer.run, args=(requests // CONNECTIONS,)) for fuzzer in fuzzers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Findings()
    for fuzzer in fuzzers:
        found.add(fuzzer.findings)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args(arguments)
    found = Findings()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_of_the_wheel(Path(folder) / "data") as postgres,
        running_server(postgres.create(), GPUWRIGHT_DATABASE_DIRECT="1", **UNLIMITED) as server,
    ):
        declare_world(server)
        tokens = tokens_of(server)
        print(f"memory at the start: {rss_mb(server.process.pid):.0f} MB", flush=True)
        begun = time.monotonic()
        rounds = 10
        for number in range(rounds):
            found.add(fuzz(server, tokens, asked.requests // rounds, asked.seed + number))
            print(
                f"{found.requests} requests, {time.monotonic() - begun:.0f} s, "
                f"server {own_rss_mb(server.process.pid):.0f} MB, with its readers {rss_mb(server.process.pid):.0f} MB",
                flush=True,
            )
        print(f"seed {asked.seed}; statuses {dict(sorted(found.statuses.items()))}; unanswered {found.unanswered}")
        log = server.log_path.read_text().splitlines()
        for line in [line for line in log if '"traceback"' in line or '"ERROR"' in line][:5]:
            print(line[:2000])
    for fault in found.faults[:20]:
        print("FAULT", fault)
    print(f"{len(found.faults)} faults")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
