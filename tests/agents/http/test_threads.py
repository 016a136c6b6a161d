"""Callers of a thread each: a deadline for each request, and room that the slow do not keep."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from agents.http.messages import HttpRequest
from agents.http.threads import HttpAnswer, ServerLimits, ThreadServer
from tests.support.patience import patience


def serving(seconds: float) -> ThreadServer:
    def answer(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, request.body or b"-")

    listener = socket.create_server(("127.0.0.1", 0))
    return ThreadServer(listener, answer, lambda bad: HttpAnswer(bad.status, b"?"), ServerLimits(2, seconds, 10))


def test_a_request_that_drips_is_refused_at_its_deadline_although_each_byte_comes_in_time() -> None:
    server = serving(seconds=0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as connection:
        received = b""
        for _ in range(2_000):
            with suppress(TimeoutError):
                connection.sendall(b"G")
                received = connection.recv(100)
                break
        assert received.startswith(b"HTTP/1.1 400 ")
    server.close()


def test_an_idle_caller_leaves_and_one_after_another_is_answered_on_a_connection() -> None:
    server = serving(seconds=0.3)
    request = b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience()) as connection:
        for _ in range(2):
            connection.sendall(request)
            assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(b"ab")
            assert connection.recv(1000).endswith(b"\r\n\r\nab")
        begun = time.monotonic()
        assert connection.recv(1) == b""
        assert time.monotonic() - begun < patience() / 2
    server.close()
