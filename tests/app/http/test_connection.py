"""Clients that are slow, large or ambiguous on the wire: each is ended by itself, the others notice nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.app.http.conftest import Client, Running, Start, request
from tests.app.http.small_app import token

QUICK = {"head_seconds": 0.4, "keep_alive_seconds": 0.4, "linger_seconds": 0.2}
AUTH = f"Authorization: Bearer {token('admin')}\r\n".encode()


def test_a_head_that_trickles_in_is_answered_408_and_others_go_on(start: Start) -> None:
    server = start(limits=QUICK)
    slow = [server.client() for _ in range(50)]
    for client in slow:
        client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert server.ask("GET", "/healthz", None).status == 200
    answers = [client.answer() for client in slow]
    assert {answer.status for answer in answers} == {408}
    assert answers[0].headers["content-type"] == "application/problem+json"
    assert all(client.ended() for client in slow)


def test_the_second_head_on_a_connection_has_the_same_deadline(start: Start) -> None:
    server = start(limits=QUICK)
    client = server.client()
    client.send(request("GET", "/healthz", None))
    assert client.answer().status == 200
    client.send(b"GET /healthz HT")
    assert client.answer().status == 408


def test_a_connection_that_says_nothing_is_closed(start: Start) -> None:
    server = start(limits=QUICK)
    assert server.client().answer().status == 0


def test_an_idle_kept_alive_connection_is_closed(start: Start) -> None:
    server = start(limits=QUICK)
    client = server.client()
    client.send(request("GET", "/healthz", None))
    assert client.answer().status == 200
    assert client.answer().status == 0


@pytest.mark.slow
def test_a_reader_of_a_watch_that_takes_nothing_is_cut_off(start: Start) -> None:
    server = start(settings={"write_stall_seconds": 0.5})
    stuck = server.client()
    stuck.send(request("GET", "/api/v1/watch?kibibytes=100000"))
    reader = server.client()
    reader.send(request("GET", "/api/v1/watch"))
    assert reader.answer().status == 200
    server.until_told('gpuwright_cut_connections_total{reason="stalled-reader"} 1.0')
    server.until_told('gpuwright_open_long_requests{lane="watch"} 1.0')
    assert b"heartbeat" in reader.socket.recv(65536)


@pytest.mark.slow
def test_a_reader_of_a_page_that_takes_nothing_is_cut_off(start: Start) -> None:
    server = start(settings={"write_stall_seconds": 0.5})
    stuck = server.client()
    stuck.send(request("GET", "/api/v1/services?kibibytes=30000"))
    server.until_told('reason="stalled-reader"} 1.0')


@pytest.mark.slow
def test_readers_that_leave_too_much_unread_together_are_cut_off(start: Start) -> None:
    server = start(limits={"write_buffered_bytes": 100_000})
    stuck = [server.client() for _ in range(4)]
    for client in stuck:
        client.send(request("GET", "/api/v1/services?kibibytes=30000"))
    server.until_told('reason="slow-reader"}')
    assert server.ask("GET", "/healthz", None).status == 200


AMBIGUOUS = {
    "both lengths": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, the other way": b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two equal lengths": b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": b"Content-Length: 3, 3\r\n\r\nabc",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a signed length": b"Content-Length: +3\r\n\r\nabc",
    "a hexadecimal length": b"Content-Length: 0x3\r\n\r\nabc",
    "an endless length": b"Content-Length: " + b"9" * 60 + b"\r\n\r\n",
    "an empty length": b"Content-Length: \r\n\r\n",
    "space before the colon": b"Content-Length : 3\r\n\r\nabc",
    "a folded header": b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "another encoding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "an unknown encoding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "an encoding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a bad chunk size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it says": b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
    "a signed chunk size": b"Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    "a second host": b"Host: y\r\nContent-Length: 0\r\n\r\n",
    "a second authorization": b"Authorization: Bearer x\r\nContent-Length: 0\r\n\r\n",
    "a NUL in a header": b"X-A: \x00\r\nContent-Length: 0\r\n\r\n",
    "a bare CR in a header": b"X-A: a\rb\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("shape", AMBIGUOUS)
def test_a_request_that_could_be_read_in_two_ways_is_refused_and_the_connection_ended(
    server: Running, shape: str
) -> None:
    client = server.client()
    smuggled = request("GET", "/api/v1/services")
    client.send(b"POST /api/v1/apply HTTP/1.1\r\nHost: x\r\n" + AUTH + AMBIGUOUS[shape] + smuggled)
    answer = client.answer()
    assert answer.status == 400
    assert answer.json["type"] == "urn:gpuwright:problem:bad-request"
    assert client.answer().status == 0  # what followed was not taken for a request
    assert server.ask("GET", "/healthz", None).status == 200


@pytest.mark.parametrize(
    "start_line",
    [
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"CONNECT evil:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[::bad HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS on a plain port
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_400(server: Running, start_line: bytes) -> None:
    client = server.client()
    client.send(start_line)
    assert client.answer().status == 400
    assert client.ended()


@pytest.mark.parametrize(
    "head",
    [
        lambda: b"X-Long: " + b"a" * 100_000,
        lambda: b"X-Endless: " + b"a" * 5_000_000,
        lambda: b"\r\n".join(b"X-%d: 1" % number for number in range(150)),
        lambda: b"\r\n".join(b"X-%d: %s" % (number, b"b" * 1000) for number in range(90)),
    ],
    ids=["long", "endless", "many", "many long"],
)
def test_a_head_that_is_too_large_is_answered_431(server: Running, head: Callable[[], bytes]) -> None:
    client = server.client()
    client.pour(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + head() + b"\r\n\r\n")
    answer = client.answer()
    assert answer.status == 431
    assert answer.json["type"] == "urn:gpuwright:problem:head-too-large"


def test_a_path_that_is_too_long_is_answered_431(server: Running) -> None:
    client = server.client()
    client.pour(b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.answer().status == 431


def test_a_few_pipelined_requests_are_answered_in_order(server: Running) -> None:
    client = server.client()
    bodies = [b"z" * number for number in range(5)]
    client.send(b"".join(request("POST", "/api/v1/apply", "admin", body) for body in bodies))
    assert [client.answer().json["bytes"] for _ in bodies] == [0, 1, 2, 3, 4]


def test_a_flood_of_pipelined_requests_ends_the_connection(server: Running) -> None:
    client = server.client()
    client.pour(request("GET", "/api/v1/slow?seconds=0.2") + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20_000)
    statuses = []
    while answer := client.answer().status:
        statuses.append(answer)
    assert statuses[0] == 200
    assert len(statuses) < 12


def test_trailers_change_nothing_that_was_checked(server: Running) -> None:
    client = server.client()
    head = b"POST /api/v1/apply HTTP/1.1\r\nHost: x\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n"
    client.send(head + b"3\r\nabc\r\n0\r\nContent-Encoding: gzip\r\nAuthorization: Bearer x\r\n\r\n")
    assert client.answer().json["bytes"] == 3
    client.send(request("GET", "/healthz", None))
    assert client.answer().status == 200


def test_a_body_of_a_million_chunks_is_refused(server: Running) -> None:
    client = server.client()
    client.send(b"POST /api/v1/apply HTTP/1.1\r\nHost: x\r\n" + AUTH + b"Transfer-Encoding: chunked\r\n\r\n")
    client.pour(b"1\r\na\r\n" * 1_000_000 + b"0\r\n\r\n")
    assert client.answer().status == 400


def test_an_upgrade_is_ignored_and_the_connection_ends_with_the_answer(server: Running) -> None:
    client = server.client()
    client.send(request("GET", "/healthz", None, Connection="Upgrade", Upgrade="h2c") + b"PRI * HTTP/2.0\r\n")
    assert client.answer().status == 200
    assert client.answer().status == 0


def test_beyond_the_most_connections_the_longest_idle_one_makes_room(start: Start) -> None:
    server = start(limits={"connections": 20})
    idle = [server.client() for _ in range(20)]
    newcomer = server.client()
    newcomer.send(request("GET", "/healthz", None))
    assert newcomer.answer().status == 200
    assert idle[0].ended()


def test_slow_heads_on_every_connection_lock_nobody_out(start: Start) -> None:
    server = start(limits={"connections": 20})
    slow = [server.client() for _ in range(20)]
    for client in slow:
        client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    time.sleep(0.1)  # until their bytes have arrived
    newcomer = server.client()
    newcomer.send(request("GET", "/healthz", None))
    assert newcomer.answer().status == 200


def test_beyond_the_most_connections_with_all_of_them_busy_a_newcomer_gets_503(start: Start) -> None:
    server = start(limits={"connections": 16})
    busy = []
    for _ in range(16):
        client = server.client()
        client.send(request("GET", "/api/v1/watch"))
        assert client.answer().status == 200
        busy.append(client)
    newcomer: Client = server.client()
    answer = newcomer.answer()
    assert answer.status == 503
    assert "retry-after" in answer.headers
