"""Requests of language models go to the copy with the fewest tokens in flight by weight, in a real HAProxy."""

from __future__ import annotations

import http.client
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agents.gateway.following import Followed
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from tests.support.haproxy import ANY_KEY, ANY_TABLE, Copies, Gateway, running_copies
from tests.support.patience import patience, until

pytestmark = pytest.mark.slow

SERVICE = "lab/chat"
PROMISES = ServiceLimit(slo_ms=1000.0, tpot_ms=50.0)
LONG, SHORT = b"x" * 40_000, b"x" * 40
BACKEND = "gw-0049"  # of the first language model
SLOW = "/slow?ms=1500"


@dataclass
class Balanced:
    """A language model behind one gateway; the sidecar is in this process."""

    gateway: Gateway
    sidecar: Sidecar
    pool: ThreadPoolExecutor
    ports: tuple[int, ...]
    sequence: int = 0
    sent: list[Future[tuple[int, str, str]]] = field(default_factory=list)

    def declare(
        self, *copies: int, weights: tuple[int, ...] = (), drained: int | None = None, ports: tuple[int, ...] = ()
    ) -> None:
        """Returns when HAProxy finds all copies ready that are not drained."""
        self.sequence += 1
        routes = tuple(
            RouteSpec(f"c{at}", SERVICE, f"127.0.0.1:{(ports or self.ports)[at]}", weight, at == drained, paths=ANY_KEY)
            for at, weight in zip(copies, weights or (1,) * len(copies), strict=True)
        )
        self.sidecar.declare("node-1", DeclaredRoutes(self.sequence, routes, ANY_TABLE))

        def all_ready() -> bool:
            found = self.sidecar.in_force("node-1")
            return found is not None and all(each.ready for each in found.routes if each.copy != f"c{drained}")

        until(all_ready, "the copies are ready")

    def send(self, body: bytes | None, path: str = "/x") -> tuple[int, str, str]:
        """Status, the port of the copy, and Retry-After."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=patience())
        try:
            connection.request("POST" if body else "GET", f"/{SERVICE}{path}", body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode().split()[0], answer.headers.get("retry-after", "")
        finally:
            connection.close()

    def begin(self, body: bytes | None) -> None:
        """Sends a slow request, and returns once HAProxy has counted it."""
        before = self.open()
        self.sent.append(self.pool.submit(self.send, body, SLOW))
        until(lambda: self.open() > before, "the request is counted")

    def counts(self) -> dict[str, tuple[int, int]]:
        """Tokens and requests in flight, by copy."""
        rows = [line.split(" ") for line in self.gateway.ask("show gpuwright tokens").splitlines() if line]
        return {row[1].partition(":")[2]: (int(row[2]), int(row[3])) for row in rows}

    def open(self) -> int:
        return sum(requests for _, requests in self.counts().values())

    def answered(self, body: bytes | None, times: int) -> Counter[int]:
        """Which copy answered how often, one request after the other."""
        found: Counter[int] = Counter()
        for _ in range(times):
            before = self.open()
            status, port, _ = self.send(body)
            assert status == 200
            found[self.ports.index(int(port))] += 1
            until(lambda before=before: self.open() <= before, "it has ended")  # type: ignore[misc]
        return found


@pytest.fixture
def balanced(tmp_path: Path, copies: Copies) -> Iterator[Balanced]:
    with ExitStack() as stack:
        gateway = Gateway(tmp_path / "gateway")
        stack.callback(gateway.close)
        gateway.start_haproxy()
        sidecar = Sidecar(gateway.state, gateway.master, gateway.requests)
        stack.callback(sidecar.close)
        sidecar.follow(Followed({}, {SERVICE: PROMISES}, ()))
        pool = stack.enter_context(ThreadPoolExecutor(16))
        yield Balanced(gateway, sidecar, pool, copies.ports)


def test_a_long_prompt_sends_the_next_short_ones_to_the_other_copy(balanced: Balanced) -> None:
    balanced.declare(0, 1)
    balanced.begin(LONG)
    ((long_copy, counted),) = balanced.counts().items()
    assert counted == (10_000 + 1024, 1)
    balanced.begin(SHORT)
    other = 1 - int(long_copy[1:])
    assert balanced.counts()[f"c{other}"] == (10 + 1024, 1)
    assert balanced.answered(SHORT, 6) == {other: 6}, "open requests are equal, tokens are not"
    assert [each.result()[0] for each in balanced.sent] == [200, 200]
    until(lambda: balanced.counts() == {}, "nothing is in flight")
    assert balanced.answered(SHORT, 24).keys() == {0, 1}, "of equal copies any is chosen"


def test_a_request_without_a_length_counts_as_one_of_256_tokens(balanced: Balanced) -> None:
    balanced.declare(0)
    balanced.begin(None)
    assert balanced.counts() == {"c0": (256 + 1024, 1)}


def test_one_caller_who_lies_about_a_length_does_not_look_like_a_full_service(balanced: Balanced) -> None:
    balanced.declare(0)
    with socket.create_connection(("127.0.0.1", balanced.gateway.port)) as liar:
        liar.sendall(b"POST /lab/chat/x HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999\r\n\r\n")
        until(lambda: balanced.counts() == {"c0": (131_072 + 1024, 1)}, "it is counted")
    until(lambda: balanced.counts() == {}, "the caller has left")


def test_a_caller_who_leaves_is_in_flight_no_longer_than_at_the_copy(balanced: Balanced) -> None:
    balanced.declare(0, 1)
    unfinished = b"POST /lab/chat/slow?ms=60000 HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\nx"
    waiting = b"GET /lab/chat/slow?ms=1500 HTTP/1.1\r\nHost: x\r\n\r\n"  # HAProxy lets the copy finish it
    for sent in (unfinished, waiting):
        with closing(socket.create_connection(("127.0.0.1", balanced.gateway.port))) as caller:
            caller.sendall(sent)
            until(lambda: balanced.open() == 1, "it is counted")
        until(lambda: balanced.counts() == {}, "the caller has left")
    assert balanced.answered(SHORT, 24).keys() == {0, 1}


def test_a_copy_that_dies_leaves_nothing_in_flight_and_gets_nothing_until_it_is_back(balanced: Balanced) -> None:
    with running_copies(1) as mortal:
        ports = (balanced.ports[0], mortal.ports[0])
        balanced.declare(0, 1, ports=ports)
        balanced.begin(LONG)
        balanced.begin(LONG)
        assert set(balanced.counts()) == {"c0", "c1"}
        mortal.process.kill()
        mortal.process.wait()
        # Requests that find it dead before HAProxy knows are sent to the other copy.
        answers = [balanced.send(SHORT) for _ in range(8)]
        assert {(status, int(port)) for status, port, _ in answers} == {(200, balanced.ports[0])}
        assert sorted(each.result()[0] for each in balanced.sent) == [200, 502]
        until(lambda: balanced.counts() == {}, "nothing is in flight")
    until(lambda: "DOWN" in balanced.gateway.ask("show stat -1 4 -1"), "HAProxy knows that it is down")
    assert balanced.answered(SHORT, 4) == {0: 4}


def test_where_all_copies_are_full_none_is_chosen_and_requests_queue(balanced: Balanced) -> None:
    balanced.declare(0)
    balanced.gateway.ask(f"set maxconn server {BACKEND}/node-1:c0 1")
    balanced.begin(SHORT)
    before = balanced.counts()
    queued = [balanced.pool.submit(balanced.send, SHORT, SLOW) for _ in range(3)]
    until(lambda: f"{BACKEND},node-1:c0,3," in balanced.gateway.ask("show stat -1 4 -1"), "they wait in the queue")
    assert balanced.counts() == before, "no copy was chosen for them"
    assert [each.result()[0] for each in queued] == [200, 200, 200]
    until(lambda: balanced.counts() == {}, "nothing is in flight")


def test_after_a_crowd_on_all_threads_nothing_is_in_flight(balanced: Balanced) -> None:
    balanced.declare(0, 1, 2)
    answers = list(balanced.pool.map(lambda at: balanced.send(SHORT * (at % 50 + 1), "/x?ms=20"), range(600)))
    assert {status for status, _, _ in answers} == {200}
    shares = Counter(port for _, port, _ in answers)
    assert min(shares.values()) > 100, "all copies have answered"
    until(lambda: balanced.counts() == {}, "nothing is in flight")


def test_a_full_copy_is_not_chosen_though_it_has_the_fewest_tokens(balanced: Balanced) -> None:
    balanced.declare(0, 1)
    balanced.begin(LONG)
    balanced.begin(SHORT)
    short = next(name for name, (tokens, _) in balanced.counts().items() if tokens < 2000)
    balanced.gateway.ask(f"set maxconn server {BACKEND}/node-1:{short} 1")
    assert balanced.answered(SHORT, 4) == {1 - int(short[1:]): 4}


def test_drained_copies_get_nothing_new_and_new_ones_get_requests(balanced: Balanced) -> None:
    balanced.declare(0, 1)
    balanced.declare(0, 1, drained=0)
    assert balanced.answered(SHORT, 4) == {1: 4}
    balanced.declare(0, 1, 2, drained=0)
    assert balanced.answered(SHORT, 24).keys() == {1, 2}
    balanced.declare(2)
    assert balanced.answered(SHORT, 4) == {2: 4}
    balanced.declare(0, 2)
    assert balanced.answered(SHORT, 24).keys() == {0, 2}


def test_weights_count(balanced: Balanced) -> None:
    balanced.declare(0, 1, weights=(30, 10))
    for _ in range(8):
        balanced.begin(LONG)
    assert {name: requests for name, (_, requests) in balanced.counts().items()} == {"c0": 6, "c1": 2}


def test_a_service_of_many_copies_with_long_names_is_balanced(balanced: Balanced) -> None:
    routes = tuple(RouteSpec(f"{'c' * 45}-{at}", SERVICE, f"127.0.0.{at + 1}:{balanced.ports[0]}") for at in range(100))
    balanced.sidecar.declare("node-1", DeclaredRoutes(1, routes[:50]))
    balanced.sidecar.declare("node-1", DeclaredRoutes(2, routes))
    assert len(balanced.gateway.ask(f"show map {balanced.gateway.state}/copies.map")) > 5000
