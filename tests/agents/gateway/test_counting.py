"""What was served is counted from HAProxy's lines: all of it, or said to be lost; nothing else."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from agents.gateway.desired import Desired, declare, servers_by_name, with_slots
from agents.gateway.receiver import Receiver
from agents.gateway.requests import KEPT_SECONDS, GatewayPromise, Tallies
from agents.gateway.wire import DeclaredRoutes, RouteSpec
from agents.seams.traffic import Counters
from tests.support.haproxy import Copies, Gateway, get, insist
from tests.support.load import steady_load
from tests.support.patience import until

KNOWN = with_slots(
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
    until(lambda: known.lines + receiver.overflowed() == sent, "all are read or lost")
    assert receiver.overflowed() > 0
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
