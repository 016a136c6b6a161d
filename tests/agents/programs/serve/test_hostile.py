"""Slow and hostile clients harm only themselves."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.programs.serve.running import PATH, Copy, serving
from tests.support.patience import patience, until
from tests.support.soak import scaled

SEED = 20


def connected(copy: Copy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", copy.port), timeout=patience())


def answer_to(copy: Copy, sent: bytes) -> bytes:
    """All that comes back until the server closes."""
    with connected(copy) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(65536):
                received += more
        return received


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    with serving("--latency", "1:0", "--request-seconds", "1") as running:
        yield running


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /healthz HTTP/3.0\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nA: b\nc: d\r\n\r\n", 400),
        (b"POST %s HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc" % PATH.encode(), 400),
        (b"POST %s HTTP/1.1\r\nContent-Length: -3\r\n\r\nabc" % PATH.encode(), 400),
        (b"POST %s HTTP/1.1\r\nContent-Length: %s\r\n\r\nabc" % (PATH.encode(), b"9" * 5000), 400),
        (b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % PATH.encode(), 411),
        (b"POST %s HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc" % PATH.encode(), 411),
        (b"POST %s HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n" % PATH.encode() + b"x" * 1_000_000, 413),
        (b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 10_000, 431),
        (b"G" * 1_000_000, 431),
    ],
)
def test_what_is_no_request_is_refused_and_cut_off(copy: Copy, sent: bytes, status: int) -> None:
    received = answer_to(copy, sent)
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in received
    assert copy.infer().status == 200


def test_a_request_that_does_not_come_whole_or_drips_is_cut_off(copy: Copy) -> None:
    parts = [b"G", b"GET /healthz HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"]
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(copy)) for _ in parts]
        for connection, part in zip(silent, parts, strict=True):
            connection.sendall(part)
        drip = stack.enter_context(connected(copy))
        drip.settimeout(0.05)
        for _ in range(2_000):
            with contextlib.suppress(TimeoutError):
                drip.sendall(b"G")
                assert drip.recv(100).startswith(b"HTTP/1.1 408 ")
                break
        else:
            pytest.fail("it may drip for ever")
        assert all(connection.recv(100).startswith(b"HTTP/1.1 408 ") for connection in silent)


def test_requests_sent_in_one_go_are_answered_one_by_one(copy: Copy) -> None:
    request = b"POST %s HTTP/1.1\r\nContent-Length: 1\r\n\r\n" % PATH.encode()
    received = answer_to(
        copy, b"".join(request + bytes([65 + number]) for number in range(20)) + b"GET / HTTP/1.0\r\n\r\n"
    )
    assert received.count(b"HTTP/1.1 200 OK") == 20
    assert received.endswith(b'{"error": "unknown path"}')


def test_a_client_that_expects_100_continue_gets_it(copy: Copy) -> None:
    with connected(copy) as connection:
        connection.sendall(b"POST %s HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n" % PATH.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(b"ok")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.slow
def test_a_client_that_takes_no_answers_is_cut_off() -> None:
    with serving("--request-seconds", "1") as copy, connected(copy) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(1)
        request = b"GET /metrics HTTP/1.1\r\n\r\n" * 100
        with contextlib.suppress(OSError):
            for _ in range(1_000):
                connection.sendall(request)
        copy.wait_figure("connections", 1)  # the one that asks
        assert resident_mib(copy) < 40


@pytest.mark.slow
def test_more_connections_than_it_takes_leave_it_answering() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2_000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_000), hard))
    with serving() as copy, contextlib.ExitStack() as stack:
        for _ in range(700):
            stack.enter_context(connected(copy)).sendall(b"POST /")
        assert copy.infer().status == 200
        assert copy.figure("connections") <= 512
        assert resident_mib(copy) < 40


@pytest.mark.slow
def test_garbage_never_stops_it() -> None:
    random.seed(SEED)
    words = [b"GET ", b"POST ", PATH.encode(), b" HTTP/1.1", b"\r\n"]
    pieces = [*words, b"\r\n\r\n", b"Content-Length: ", b"5", b"\x00\xff", b"{"]
    with serving("--request-seconds", "1") as copy:
        for _ in range(scaled(20_000, 2_000)):
            with connected(copy) as connection, contextlib.suppress(OSError):
                connection.sendall(b"".join(random.choices(pieces, k=random.randint(1, 12))))
                if random.random() < 0.3:
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1000)
        assert copy.infer().status == 200
        copy.wait_figure("connections", 1)
        assert len(copy.log) == 2, "\n".join(copy.log)


def test_a_half_sent_request_does_not_keep_a_drained_server() -> None:
    with serving("--request-seconds", "3600") as copy, connected(copy) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\n")
        copy.wait_figure("connections", 2)
        copy.process.send_signal(signal.SIGTERM)
        assert copy.exit_code() == 0


@pytest.mark.slow
def test_a_request_that_arrives_during_the_drain_gets_a_503() -> None:
    with serving() as copy, connected(copy) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 1\r\n\r\n" % PATH.encode())
        copy.wait_figure("connections", 2)
        copy.process.send_signal(signal.SIGTERM)
        until(lambda: copy.ask("GET", "/healthz").json == {"status": "draining"})
        connection.sendall(b"x")
        assert connection.recv(1000).startswith(b"HTTP/1.1 503 ")
        assert copy.exit_code() == 0


def resident_mib(copy: Copy) -> float:
    status = Path(f"/proc/{copy.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
