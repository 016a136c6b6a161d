"""The agent's client of a copy, however the copy behaves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from agents.talk.copy_client import MOST_BYTES, CopyPlace, TcpCopyClient
from agents.templates import Filled, Probe
from tests.support.patience import patience


@contextmanager
def copy_that(behaves: Callable[[socket.socket, bytes], None], host: str = "127.0.0.1") -> Iterator[int]:
    """The port of a copy that treats each connection, and the request it has read, in this way."""
    with socket.create_server((host, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        request = b""
                        while b"\r\n\r\n" not in request:
                            request += connection.recv(65536)
                        behaves(connection, request)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(patience())
    assert not thread.is_alive()


def says(answer: bytes) -> Callable[[socket.socket, bytes], None]:
    return lambda connection, request: connection.sendall(answer)


def too_long(connection: socket.socket, request: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MOST_BYTES * 10)
    connection.sendall(head + b"x" * (MOST_BYTES + 1))


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_an_answer_comes_back_with_its_status() -> None:
    with copy_that(says(ok(b"fine"))) as port:
        reply = TcpCopyClient().ask(CopyPlace(port), Probe("GET", "/healthz"))
    assert (reply.ok, reply.status, reply.body) == (True, 200, b"fine")


def test_a_refusal_is_an_answer_that_is_not_ok() -> None:
    with copy_that(says(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")) as port:
        reply = TcpCopyClient().ask(CopyPlace(port), Probe("GET", "/healthz"))
    assert (reply.ok, reply.status) == (False, 503)


def test_a_chunked_answer_is_put_together() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with copy_that(says(answer)) as port:
        assert TcpCopyClient().ask(CopyPlace(port), Probe("GET", "/metrics")).body == b"abcde"


def test_the_live_batch_is_filled_into_the_body() -> None:
    requests: list[bytes] = []

    def behave(connection: socket.socket, request: bytes) -> None:
        requests.append(request)
        connection.sendall(ok(b""))

    body = '{"batch": {batch}, "batchTimeoutMs": {batch_timeout_ms}}'
    with copy_that(behave) as port:
        assert TcpCopyClient().ask(CopyPlace(port), Probe("PUT", "/v1/batch", body), batch=8, batch_timeout_ms=2.5).ok
    assert requests[0].startswith(b"PUT /v1/batch HTTP/1.1\r\n")
    assert requests[0].endswith(b'{"batch": 8, "batchTimeoutMs": 2.5}')


def drips(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def says_nothing(connection: socket.socket, request: bytes) -> None:
    connection.recv(1)


def never_ends(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def header_without_end(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"y" * 1000 + b"\r\n")


@pytest.mark.parametrize(
    "behave",
    [
        drips,
        says_nothing,
        never_ends,
        header_without_end,
        says(b""),
        says(b"\x00\xff garbage \r\n\r\n"),
        says(b"HTTP/1.1 abc\r\n\r\n"),
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
        says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        too_long,
        says(b"HTTP/1.1 100 Continue\r\n\r\n" * 10),
    ],
)
def test_a_copy_that_misbehaves_is_no_answer_and_no_hang(behave: Callable[[socket.socket, bytes], None]) -> None:
    with copy_that(behave) as port:
        reply = TcpCopyClient().ask(CopyPlace(port), Probe("GET", "/metrics", seconds=0.3))
    assert (reply.ok, reply.status) == (False, 0)
    assert reply.why


def test_a_port_without_listener_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert not TcpCopyClient().ask(CopyPlace(port), Probe("GET", "/")).ok
    assert not TcpCopyClient().ask(CopyPlace(0), Probe("GET", "/")).ok
    assert not TcpCopyClient().ask(CopyPlace(99_999), Probe("GET", "/")).ok


def test_metrics_may_be_on_another_port() -> None:
    text = b'nv_inference_request_success{model="m",version="1"} 7\n'
    with copy_that(says(ok(text))) as port:
        totals = TcpCopyClient().served(
            CopyPlace(1), Filled("t", ("x",), metrics=Probe("GET", "/metrics", port=port), metrics_kind="triton")
        )
    assert totals is not None
    assert totals.counters.requests == 7


def test_a_copy_without_metrics_says_nothing() -> None:
    assert TcpCopyClient().served(CopyPlace(1), Filled("t", ("x",))) is None
    assert (
        TcpCopyClient().served(
            CopyPlace(1), Filled("t", ("x",), metrics=Probe("GET", "/metrics"), metrics_kind="gpuwright")
        )
        is None
    )


def test_a_copy_is_asked_where_it_listens_and_nowhere_else() -> None:
    """A node whose gateway is another machine has an address of its own, and its copies listen there alone."""
    with copy_that(says(ok(b"{}")), "127.0.0.2") as port:
        assert TcpCopyClient("127.0.0.2").ask(CopyPlace(port), Probe("GET", "/healthz")).ok
        assert not TcpCopyClient().ask(CopyPlace(port), Probe("GET", "/healthz")).ok
