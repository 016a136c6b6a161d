"""What was served is counted from HAProxy's lines: all of it, or said to be lost; nothing else."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.gateways import LengthTotals, TokenTotals
from agents.gateway.desired import Desired, declare, give_slots, servers_by_name
from agents.gateway.receiver import Receiver
from agents.gateway.requests import KEPT_SECONDS, GatewayPromise, Tallies
from agents.gateway.wire import DeclaredRoutes, RouteSpec
from agents.seams.traffic import Counters
from tests.support.haproxy import Copies, Gateway, get, insist
from tests.support.load import steady_load
from tests.support.patience import until

KNOWN = give_slots(
    declare(Desired(), "node-1", DeclaredRoutes(1, (RouteSpec("c/1", "shop/search", "127.0.0.1:9001"),))), idle=()
)
SERVER = b"node-1:c_2f1"
LINE = b"gw1 77 shop/search " + SERVER + b" 200 -- 12 0"


def tallies() -> Tallies:
    known = Tallies()
    known.track(servers_by_name(KNOWN.servers()), KNOWN.slots, now=0, promises={})
    return known


def counted(known: Tallies) -> list[tuple[str, int, int, int]]:
    return [(one.copy, one.requests, one.errors, sum(one.latency_counts)) for one in known.counted()]


@pytest.mark.slow
def test_counters_add_up_to_what_the_callers_sent(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0), copies.route(1)])
    with steady_load(gateway.port, "/shop/search/x", rate_per_second=200) as load:
        gateway.reload()
        until(lambda: sum(one.requests for one in routes.counters().values()) > 100, "some are counted")
        insist(routes, [copies.route(1)])  # what is gone is still told of
        sent = load.stop()
    for _ in range(5):
        assert get(gateway, "/shop/search/broken", "POST")[0] == 503
    assert sent.failed == ()
    expected = len(sent.samples) + 5

    def total() -> tuple[int, int, int]:
        counters = routes.counters().values()
        return (
            sum(one.requests for one in counters),
            sum(one.errors for one in counters),
            sum(sum(one.latency_counts) for one in counters),
        )

    until(lambda: total() == (expected, 5, expected - 5), f"{total()} of {expected}")
    assert set(routes.counters()) == {"copy-0", "copy-1"}


def test_a_line_is_counted_for_its_copy_and_its_service_in_the_bucket_of_its_latency() -> None:
    known = tallies()
    known.add(LINE)
    copy, service = known.counted()
    bucket = next(at for at, edge in enumerate(LATENCY_EDGES_MS) if edge >= 12)
    assert (copy.copy, copy.source, copy.requests, copy.errors, copy.latency_counts[bucket]) == (
        "c/1", "node-1", 1, 0, 1,
    )  # fmt: skip
    assert (service.copy, service.service, service.requests) == ("", "shop/search", 1)


def test_errors_are_counted_without_a_latency_and_a_caller_who_hangs_up_is_no_error() -> None:
    known = tallies()
    for line in (
        LINE.replace(b"200", b"503"),
        LINE.replace(b"200 --", b"-1 SC"),
        LINE.replace(b"200 --", b"-1 CD"),
        LINE.replace(b"200", b"404"),
        LINE.replace(SERVER, b"<NOSRV>").replace(b"200", b"503"),
    ):
        known.add(line)
    assert counted(known) == [("c/1", 4, 2, 1), ("", 5, 3, 1)]


def test_lines_that_are_none_are_refused_and_counted_and_fill_no_memory() -> None:
    known, noise = tallies(), random.Random(3)
    hostile = [
        b"", b"gw1", LINE + b" more", LINE.replace(b"200", b"9" * 900), LINE.replace(b"12 0", b"nan 0"),
        LINE.replace(b"200", b"-7"), LINE.replace(b"shop/search", b"x" * 2000), b"\x00" * 60,
        LINE.replace(b"gw1", b"gw2"),
        *(noise.randbytes(noise.randrange(1100)) for _ in range(200)),
    ]  # fmt: skip
    for line in hostile:
        known.add(line)
    assert (known.lines, known.refused) == (len(hostile), len(hostile))
    for index in range(1000):
        known.add(LINE.replace(b"shop/search", b"shop/s%d" % index))
        known.add(LINE.replace(SERVER, b"node-1:x%d" % index))
    assert known.unknown == 1000
    assert counted(known) == [("c/1", 0, 0, 0), ("", 1000, 0, 1000)]


@pytest.mark.parametrize(
    ("status", "active_ms", "tokens", "is_counted"),
    [
        (-1, 0, "", True), (-2, 0, "", False), (999, 0, "", True), (1000, 0, "", False), (200, -1, "", True),
        (200, -2, "", False), (200, 2**31, "", True), (200, 2**31 + 1, "", False), (200, 1, " -", True),
        (200, 1, " -1:-1:0:0", True), (200, 1, " -2:-1:0:0", False), (200, 1, " -1:-2:0:0", False),
        (200, 1, " -1:-1:-1:0", False), (200, 1, " -1:-1:0:-1", False),
        (200, 1, f" {2**31}:{2**40}:{2**31}:{2**31}", True), (200, 1, f" {2**31 + 1}:0:0:0", False),
        (200, 1, f" 0:{2**40 + 1}:0:0", False), (200, 1, f" 0:0:{2**31 + 1}:0", False),
        (200, 1, f" 0:0:0:{2**31 + 1}", False), (200, 1, " 0:0:0:0 more", False),
    ],
)  # fmt: skip
def test_figures_are_believed_as_far_as_they_can_be_true(
    status: int, active_ms: int, tokens: str, is_counted: bool
) -> None:
    known = tallies()
    known.add(f"gw1 77 shop/search node-1:c_2f1 {status} -- {active_ms} 0{tokens}".encode())
    assert (known.lines, known.refused) == (1, int(not is_counted))
    assert [one.requests for one in known.counted()] == [int(is_counted)] * 2


def test_each_answer_is_counted_once_wherever_it_belongs() -> None:
    known = Tallies()
    servers = servers_by_name(KNOWN.servers())
    known.track(servers, {**KNOWN.slots, "lab/chat": 49}, 0, {"lab/chat": GatewayPromise(50.0, 20.0)})
    edges = len(LATENCY_EDGES_MS)
    for status, end, active_ms in ((200, "--", 0), (499, "--", 10**9), (500, "--", 3), (503, "LR", 0), (503, "SC", 0)):
        known.add(f"gw1 7 shop/search node-1:c_2f1 {status} {end} {active_ms} 0 1:1:1:1".encode())
    copy, service, chat = known.counted()
    for one in (copy, service):
        assert (one.requests, one.errors, one.open, one.timed, one.late, one.tokens) == (5, 3, 0, 0, 0, None)
        assert one.latency_counts == (1, *(0,) * (edges - 1), 1)
    assert (copy.shed, service.shed, known.ended()["shop/search"]) == (0, 1, (5, 1))
    assert (chat.requests, chat.latency_counts, chat.tokens, chat.lengths) == (0, (0,) * (edges + 1), None, None)
    for tokens in ("50:20000:10:5", "51:20001:0:7", "51:-1:8:0", "-1:0:1:11"):
        known.add(f"gw1 7 lab/chat <NOSRV> 200 -- 250 0 {tokens}".encode())
    chat = known.counted()[2]
    assert chat.tokens == TokenTotals(19, 23, 3, 1)
    assert chat.lengths == LengthTotals(2, 11, 16)
    assert (chat.requests, chat.timed, chat.late) == (4, 4, 2), "the last one's first token came after 50 ms"
    assert known.counted("node-1") == (copy,)
    assert known.counted("node-2") == ()


def test_of_many_copies_that_are_gone_the_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.gateway.requests.MOST_GONE_COPIES", 2)
    routes = tuple(RouteSpec(name, "shop/search", "127.0.0.1:9001") for name in "abcd")
    state = give_slots(declare(Desired(), "n", DeclaredRoutes(1, routes)), idle=())
    servers = servers_by_name(state.servers())
    known = Tallies()
    known.track(servers, state.slots, 0, {})
    for at, name in enumerate("abcd", 1):
        del servers[f"n:{name}"]
        known.track(servers, state.slots, float(at), {})
    assert [one.copy for one in known.counted()] == ["c", "d", ""]
    known.track({}, {}, 5.0, {})
    assert [one.copy for one in known.counted()] == ["c", "d"]
    known.track({}, {}, 3.0 + KEPT_SECONDS, {})
    assert [one.copy for one in known.counted()] == ["c", "d"]
    known.track({}, {}, 3.1 + KEPT_SECONDS, {})
    assert [one.copy for one in known.counted()] == ["d"]


def test_a_copy_that_is_routed_no_more_is_told_of_for_a_while() -> None:
    known = tallies()
    known.add(LINE)
    known.track({}, KNOWN.slots, now=10, promises={})
    known.track({}, KNOWN.slots, now=KEPT_SECONDS, promises={})
    assert counted(known)[0] == ("c/1", 1, 0, 1)
    known.track({}, KNOWN.slots, now=11 + KEPT_SECONDS, promises={})
    assert counted(known) == [("", 1, 0, 1)]


@pytest.mark.slow
def test_every_line_that_was_sent_is_counted_or_lost(tmp_path: Path) -> None:
    known = tallies()
    receiver = Receiver("127.0.0.1:0", known)
    host, _, port = receiver.address.rpartition(":")
    sent = 60_000
    with receiver.lock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as haproxy:  # it cannot read for a while
        haproxy.connect((host, int(port)))
        for _ in range(sent):
            haproxy.send(LINE)
    until(lambda: known.lines + receiver.count_overflowed() == sent, "all are read or lost")
    assert receiver.count_overflowed() > 0
    assert counted(known)[0] == ("c/1", known.lines, 0, known.lines)
    receiver.close()


def test_a_unix_socket_takes_lines_too(tmp_path: Path) -> None:
    known = tallies()
    receiver = Receiver(str(tmp_path / "lines"), known)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as haproxy:
        haproxy.connect(receiver.address)
        for _ in range(100):
            haproxy.send(LINE)
    until(lambda: known.lines == 100, "all are read")
    receiver.close()
    assert not (tmp_path / "lines").exists()


@pytest.mark.slow
def test_counters_are_what_the_agent_takes(gateway: Gateway, copies: Copies) -> None:
    routes = gateway.routes()
    routes.declare([copies.route(0)])
    assert routes.counters() == {"copy-0": Counters(0, 0, (0,) * (len(LATENCY_EDGES_MS) + 1))}
    assert gateway.routes("node-2").counters() == {}


def test_answers_are_held_against_the_slo_to_the_millisecond() -> None:
    known = Tallies()
    known.track(servers_by_name(KNOWN.servers()), KNOWN.slots, now=0, promises={"shop/search": GatewayPromise(80.0)})
    for answered_ms in (10, 80, 81, 300):
        known.add(b"gw1 77 shop/search " + SERVER + b" 200 -- %d 0" % answered_ms)
    known.add(b"gw1 77 shop/search " + SERVER + b" 500 -- 900 0")
    service = next(one for one in known.counted() if not one.copy)
    assert (service.timed, service.late) == (4, 2)
