"""HAProxy, its sidecar and real model servers: in an overload no copy gets more than it answers in time."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.contract.gateways import EndpointCopy, Endpoints, ServiceEndpoints
from agents.gateway.desired import MOST_OPEN
from agents.gateway.following import follow_endpoints
from agents.gateway.sidecar import Sidecar
from tests.agents.programs.serve.running import PATH, serving
from tests.support.haproxy import Gateway
from tests.support.patience import patience, until

pytestmark = pytest.mark.slow

SERVICE = "shop/search"
SERVERS = ("_node-1:a", "_node-1:b")
IN_TIME = 8  # two batches of four in 0.4 s each, within the SLO of a second
CALLERS = 60


@dataclass
class Limited:
    """A service of two copies behind one gateway; the sidecar is in this process."""

    gateway: Gateway
    sidecar: Sidecar
    ports: tuple[int, int]

    def follow(self, shed_share: float = 0.0, in_time: int = IN_TIME) -> None:
        copies = tuple(
            EndpointCopy(name, "node-1", f"127.0.0.1:{port}", weight, False, in_time)
            for name, port, weight in zip("ab", self.ports, (10.0, 1.0), strict=True)
        )
        limit = {"queue_limit": 1000, "slo_ms": 1000.0, "percentile": 95.0, "shed_share": shed_share}
        wanted = follow_endpoints(Endpoints(1, (ServiceEndpoints(SERVICE, copies, **limit),)), loopback=True)  # type: ignore[arg-type]
        self.sidecar.follow(wanted)

    def send(self, number: int = 0) -> tuple[int, str]:
        """Status and Retry-After."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=patience())
        connection.request("POST", f"/{SERVICE}{PATH}", b"x")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers.get("retry-after", "")

    def crowd(self) -> Counter[tuple[int, str]]:
        """All callers at once."""
        with ThreadPoolExecutor(CALLERS) as callers:
            return Counter(callers.map(self.send, range(CALLERS)))

    def figures(self, column: int) -> dict[str, int]:
        """A column of HAProxy's statistics, by server."""
        rows = [line.split(",") for line in self.gateway.ask("show stat -1 4 -1").splitlines()]
        return {row[1]: int(row[column]) for row in rows if len(row) > column and row[1] in SERVERS}

    def most_since(self) -> dict[str, int]:
        """The most requests that each copy had open since `clear counters`."""
        return self.figures(5)

    def limits(self) -> dict[str, int]:
        return self.figures(6)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    with ExitStack() as stack:
        words = ("--port", "0", "--latency", "1:400;4:400", "--batch", "4", "--max-batch", "4")
        first, second = (stack.enter_context(serving(*words)) for _ in range(2))
        gateway = Gateway(tmp_path_factory.mktemp("limited") / "gateway")
        stack.callback(gateway.close)
        gateway.start_haproxy()
        sidecar = Sidecar(Path(gateway.state), gateway.master, gateway.requests)
        stack.callback(sidecar.close)
        yield Limited(gateway, sidecar, (first.port, second.port))


def test_where_the_plan_is_short_each_copy_gets_what_it_answers_in_time_and_the_rest_is_told_at_once(
    limited: Limited,
) -> None:
    limited.follow(shed_share=0.3)
    until(lambda: limited.limits() == dict.fromkeys(SERVERS, IN_TIME), "copies have their limits")
    limited.gateway.ask("clear counters")
    answers = limited.crowd()
    assert answers.keys() <= {(200, ""), (503, "2")}
    assert answers[200, ""] >= 2 * IN_TIME, "the copy of the lower weight answers as well"
    assert answers[503, "2"] > 0
    assert max(limited.most_since().values()) <= IN_TIME
    assert limited.send() == (200, ""), "with room again no share is turned away at random"


def test_a_crowd_is_an_overload_that_ends_and_leaves_no_limit(limited: Limited) -> None:
    limited.follow()
    until(lambda: limited.limits() == dict.fromkeys(SERVERS, MOST_OPEN), "nothing is limited")
    known = threading.Event()

    def repeat(number: int) -> Counter[tuple[int, str]]:
        answers: Counter[tuple[int, str]] = Counter()
        while not known.is_set():
            answers[limited.send()] += 1
        return answers

    with ThreadPoolExecutor(CALLERS) as callers:
        pending = [callers.submit(repeat, number) for number in range(CALLERS)]
        try:
            until(lambda: limited.limits() == dict.fromkeys(SERVERS, IN_TIME), "it is an overload")
        finally:
            known.set()
        assert sum((answers.result() for answers in pending), Counter()).keys() <= {(200, ""), (503, "2")}
    until(lambda: limited.limits() == dict.fromkeys(SERVERS, MOST_OPEN), "it is over")
    assert limited.send() == (200, "")


def test_of_unknown_batches_only_the_share_is_turned_away(limited: Limited) -> None:
    limited.follow(shed_share=0.5, in_time=0)
    until(lambda: limited.limits() == dict.fromkeys(SERVERS, MOST_OPEN), "nothing is limited")
    answers = Counter(limited.send() for _ in range(40))
    assert answers.keys() == {(200, ""), (503, "2")}
