"""A raw fuzzer for the whole API with tokens of every kind: seeded, over a few kept connections.

No answer may be a 5xx, and none may name what belongs to a tenant that the token may not read.

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

from tests.proofs.foreign import CANARY, declare_canary
from tests.proofs.hostile import MEDIA, Hostile, written
from tests.support.figures import own_rss_mb, rss_mb
from tests.support.postgres import postgres_of_the_wheel
from tests.support.server import RunningServer, running_server
from tests.support.world import declare_world

SEED = 1
CONNECTIONS = 6
ENDED = ("revoked", "none")  # kinds of tokens that must be refused
UNLIMITED = {"GPUWRIGHT_RATE_PER_SECOND": "1000000", "GPUWRIGHT_RATE_BURST": "1000000"}
ODD_METHODS = ["HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE", "GET", "BREW", "get"]
ODD_HEADERS = ["If-Match", "Idempotency-Key", "X-Request-Id", "Last-Event-ID", "Accept", "traceparent"]
LONG = re.compile(r"/(watch|assignment)$")
WAIT_SECONDS = 60.0  # a hang guard
GLIMPSE_SECONDS = 0.3  # of a watch or a long poll


class FuzzToken(NamedTuple):
    """A token, empty for none, and whether answers to it may name things of every tenant."""

    kind: str
    text: str
    sees_all: bool


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
    by_kind: Counter[str] = field(default_factory=Counter)  # requests, by the kind of their token
    accepted: Counter[str] = field(default_factory=Counter)  # answers of 2xx, by the same
    faults: list[str] = field(default_factory=list)
    unanswered: int = 0  # the server ended the connection instead: allowed after a refused head only

    def add(self, other: Findings) -> None:
        self.requests += other.requests
        self.statuses += other.statuses
        self.by_kind += other.by_kind
        self.accepted += other.accepted
        self.faults += other.faults
        self.unanswered += other.unanswered


class Fuzzer:
    """One connection's worth of requests."""

    def __init__(self, port: int, tokens: Sequence[FuzzToken], routes: Sequence[Route], seed: int) -> None:
        self.findings = Findings()
        self._port = port
        self._address = f"127.0.5.{1 + seed % 200}"  # failed authentications count by address
        self._tokens = tokens
        self._routes = routes
        self._hostile = Hostile(seed)
        self._rng = self._hostile.rng
        self._socket: socket.socket | None = None
        self._rest = b""

    def run(self, count: int) -> None:
        for _ in range(count):
            token = self._token()
            method, path, request = self.request(token.text)
            self.findings.requests += 1
            self.findings.by_kind[token.kind] += 1
            try:
                self._ask(method, path, request, token)
            except TimeoutError:
                self._close()
                if not LONG.search(path.partition("?")[0]):
                    self._fault(request, "no answer within a minute")
            except OSError:
                self._close()
                self.findings.unanswered += 1
        self._close()

    def _token(self) -> FuzzToken:
        """Mostly one that is known to be good: an address that sends many others is told to slow down."""
        rng = self._rng
        if rng.random() < 0.005:
            return FuzzToken("nonsense", rng.choice(["gw_nobody_nothing", "gw_é", "x" * 500]), False)
        if rng.random() < 0.3:
            return self._tokens[0]
        is_ended = rng.random() < 0.04
        return rng.choice([token for token in self._tokens if (token.kind in ENDED) is is_ended])

    def request(self, token: str) -> tuple[str, str, bytes]:
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

    def _ask(self, method: str, path: str, request: bytes, token: FuzzToken) -> None:
        """Asks again where the server is busy and says when to, as clients do; it must answer within a minute."""
        until = time.monotonic() + WAIT_SECONDS
        while (pause := self._exchange(method, path, request, token)) and time.monotonic() + pause < until:
            time.sleep(pause)
        if pause:
            self._fault(request, "still busy after a minute")

    def _exchange(self, method: str, path: str, request: bytes, token: FuzzToken) -> int:
        """Returns after how many seconds to ask again; 0 if it was answered."""
        if self._socket is None:
            source = (self._address, 0)
            self._socket = socket.create_connection(("127.0.0.1", self._port), WAIT_SECONDS, source)
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
                return 0
            body = self._take(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self._close()
        self.findings.statuses[status] += 1
        if status < 300:
            self.findings.accepted[token.kind] += 1
        if not token.sees_all and CANARY.encode() in head.encode("latin-1") + body and CANARY.encode() not in request:
            self._fault(request, f"{token.kind} reads of another tenant: {status} {body[:2000]!r}")
        pause = headers.get("retry-after", "")
        if status == 503 and pause.isdecimal() and int(pause):
            return int(pause)
        self._judge(method, status, headers, body, request)
        return 0

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


def tokens_of(server: RunningServer) -> list[FuzzToken]:
    """One of each kind, used once: an address that guesses tokens is refused with those not known to be good."""
    tokens = [
        FuzzToken("admin", server.token("admin"), True),
        FuzzToken("operator", server.token("operator"), True),
        FuzzToken("viewer", server.token("viewer"), True),
        FuzzToken("tenant operator", server.token("operator", tenant="shop"), False),
        FuzzToken("tenant viewer", server.token("viewer", tenant="lab"), False),
        FuzzToken("node", server.token("node", node="node-1"), False),
        FuzzToken("gateway", server.token("gateway", gateway="edge-1"), True),  # which routes to every tenant
        FuzzToken("revoked", server.token("viewer"), False),
    ]
    for token in tokens:
        assert server.request("GET", "/api/v1/whoami", token=token.text).status == 200
    revoked = tokens[-1].text
    assert server.request("DELETE", f"/api/v1/tokens/{revoked.split('_')[1]}").status == 200
    return [*tokens, FuzzToken("none", "", False)]


def fuzz(server: RunningServer, tokens: Sequence[FuzzToken], requests: int, seed: int) -> Findings:
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
        declare_canary(server)
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
        print(f"by token {dict(found.by_kind)}; accepted {dict(found.accepted)}")
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
