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

from agents.gateway.configuration import MOST_COPIES, list_copies
from agents.gateway.desired import Desired, declare, follow, with_slots
from agents.gateway.haproxy import Haproxy
from agents.gateway.master_socket import MasterSocket
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import DeclaredRoutes, RouteSpec, ServiceLimit
from tests.support.caller import until
from tests.support.haproxy import Copies, Gateway, running_copies

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
            RouteSpec(f"c{at}", SERVICE, f"127.0.0.1:{(ports or self.ports)[at]}", weight, at == drained)
            for at, weight in zip(copies, weights or (1,) * len(copies), strict=True)
        )
        self.sidecar.declare("node-1", DeclaredRoutes(self.sequence, routes))

        def all_ready() -> bool:
            found = self.sidecar.in_force("node-1")
            return found is not None and all(each.ready for each in found.routes if each.copy != f"c{drained}")

        until(all_ready, "the copies are ready")

    def send(self, body: bytes | None, path: str = "/x") -> tuple[int, str, str]:
        """Status, the port of the copy, and Retry-After."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
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
        sidecar.follow({}, {SERVICE: PROMISES})
        pool = stack.enter_context(ThreadPoolExecutor(16))
        yield Balanced(gateway, sidecar, pool, copies.ports)


def test_a_long_prompt_sends_the_next_short_ones_to_the_other_copy(balanced: Balanced) -> None:
    balanced.declare(0, 1)
    balanced.begin(LONG)
    ((long_copy, counted),) = balanced.counts().items()
    assert counted == (10_000 + 256, 1)
    balanced.begin(SHORT)
    other = 1 - int(long_copy[1:])
    assert balanced.counts()[f"c{other}"] == (10 + 256, 1)
    assert balanced.answered(SHORT, 6) == {other: 6}, "open requests are equal, tokens are not"
    assert [each.result()[0] for each in balanced.sent] == [200, 200]
    until(lambda: balanced.counts() == {}, "nothing is in flight")
    assert balanced.answered(SHORT, 24).keys() == {0, 1}, "of equal copies any is chosen"


def test_a_request_without_a_length_counts_as_one_of_256_tokens(balanced: Balanced) -> None:
    balanced.declare(0)
    balanced.begin(None)
    assert balanced.counts() == {"c0": (512, 1)}


def test_one_caller_who_lies_about_a_length_does_not_look_like_a_full_service(balanced: Balanced) -> None:
    balanced.declare(0)
    with socket.create_connection(("127.0.0.1", balanced.gateway.port)) as liar:
        liar.sendall(b"POST /lab/chat/x HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999\r\n\r\n")
        until(lambda: balanced.counts() == {"c0": (131_072 + 256, 1)}, "it is counted")
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


def test_requests_that_time_out_are_in_flight_no_longer(tmp_path: Path, copies: Copies) -> None:
    gateway = Gateway(tmp_path / "gateway")
    with closing(gateway), ThreadPoolExecutor(4) as pool:
        routes = (RouteSpec("c0", SERVICE, f"127.0.0.1:{copies.ports[0]}"),)
        desired = declare(follow(Desired(), {}, {SERVICE: PROMISES}), "node-1", DeclaredRoutes(1, routes))
        Haproxy(MasterSocket(gateway.master), gateway.state, gateway.requests).write(with_slots(desired, idle=()))
        path = gateway.state / "gpuwright.cfg"
        text = path.read_text().replace("timeout server 600s", "timeout server 1s").replace("maxconn 512", "maxconn 2")
        path.write_text(text.replace("timeout queue 10s", "timeout queue 500ms"))
        gateway.start_haproxy()

        def send(_: int) -> int:
            with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)) as connection:
                connection.request("POST", "/lab/chat/slow?ms=60000", SHORT)
                return connection.getresponse().status

        answers = [pool.submit(send, at) for at in range(4)]
        until(lambda: gateway.ask("show gpuwright tokens") == f"{BACKEND} node-1:c0 532 2", "two are in flight")
        assert Counter(each.result() for each in answers) == {503: 2, 504: 2}
        until(lambda: not gateway.ask("show gpuwright tokens"), "nothing is in flight")


def test_a_full_copy_is_not_chosen_though_it_has_the_fewest_tokens(balanced: Balanced) -> None:
    balanced.declare(0, 1)
    balanced.begin(LONG)
    balanced.begin(SHORT)
    short = next(name for name, (tokens, _) in balanced.counts().items() if tokens < 1000)
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


def test_with_too_many_tokens_in_flight_a_service_refuses_at_once(balanced: Balanced) -> None:
    limit = ServiceLimit(slo_ms=1000.0, tpot_ms=50.0, queue_tokens=20_000, retry_after_seconds=7)
    balanced.sidecar.follow({}, {SERVICE: limit})
    balanced.declare(0, 1)
    balanced.begin(LONG)
    balanced.begin(LONG)
    status, _, retry = balanced.send(SHORT)
    assert (status, retry) == (503, "7")
    assert balanced.open() == 2, "what is refused is not counted"
    until(lambda: balanced.counts() == {}, "nothing is in flight")
    assert balanced.send(LONG)[0] == 200


def test_a_service_of_very_many_copies_goes_by_open_requests() -> None:
    def listed(count: int, name: str = "c") -> dict[str, str]:
        routes = tuple(RouteSpec(f"{name}{at}", SERVICE, f"10.0.0.1:{1000 + at}") for at in range(count))
        desired = declare(follow(Desired(), {}, {SERVICE: PROMISES}), "node-1", DeclaredRoutes(1, routes))
        return list_copies(with_slots(desired, idle=()))

    assert listed(2) == {SERVICE: "node-1:c0=256=512,node-1:c1=256=512"}
    assert listed(MOST_COPIES).keys() == {SERVICE}
    assert listed(MOST_COPIES + 1) == {}
    assert listed(MOST_COPIES, "c" * 80) == {}
    assert listed(0) == {}


def test_a_service_of_many_copies_with_long_names_is_balanced(balanced: Balanced) -> None:
    routes = tuple(RouteSpec(f"{'c' * 45}-{at}", SERVICE, f"127.0.0.{at + 1}:{balanced.ports[0]}") for at in range(100))
    balanced.sidecar.declare("node-1", DeclaredRoutes(1, routes[:50]))
    balanced.sidecar.declare("node-1", DeclaredRoutes(2, routes))
    assert len(balanced.gateway.ask(f"show map {balanced.gateway.state}/copies.map")) > 5000
