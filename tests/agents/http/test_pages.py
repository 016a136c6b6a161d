"""The page server under ordinary callers, garbage and silence."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from agents.http.pages import LIMITS, serve
from agents.http.threads import ThreadServer
from tests.support.patience import patience, until


@pytest.fixture
def server() -> Iterator[ThreadServer]:
    pages = serve(("127.0.0.1", 0), {"/metrics": lambda: b"a 1\n"})
    yield pages
    pages.close()


def got(server: ThreadServer, path: str = "/metrics") -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=patience()) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, "", error.read()


def raw(server: ThreadServer, sent: bytes) -> bytes:
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience()) as connection:
        with suppress(OSError):
            connection.sendall(sent)
        with suppress(ConnectionResetError):
            while more := connection.recv(4096):
                received += more
    return received


def test_the_page_is_served_and_nothing_else(server: ThreadServer) -> None:
    assert got(server) == (200, "text/plain; version=0.0.4; charset=utf-8", b"a 1\n")
    assert got(server, "/metrics?x=1")[0] == 200
    assert got(server, "/")[0] == 404
    assert got(server, "/metrics/../../etc/passwd")[0] == 404
    assert raw(server, b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").startswith(b"HTTP/1.1 405 ")
    assert raw(server, b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


@pytest.mark.parametrize("sent", [b"\r\n\r\n", b"\x16\x03\x01\x00\r\n\r\n", b"x" * 100_000])
def test_garbage_is_answered_or_cut_off(server: ThreadServer, sent: bytes) -> None:
    assert raw(server, sent)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431", b"")
    until(lambda: got(server)[0] == 200)


def test_callers_that_say_nothing_cannot_tie_it_up_for_good(server: ThreadServer) -> None:
    with ExitStack() as silent:
        for _ in range(LIMITS.connections + 4):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))

        def served() -> bool:
            with suppress(OSError):
                return got(server)[0] == 200
            return False

        until(served, "the silent ones were never sent away")


def test_a_fault_in_what_is_shown_is_an_answer_too() -> None:
    def broken() -> bytes:
        raise KeyError("no such copy")

    server = serve(("127.0.0.1", 0), {"/metrics": broken})
    assert got(server)[0] == 500
    assert got(server)[0] == 500, "and it goes on"
    server.close()


def test_it_can_be_closed_and_its_port_taken_again(server: ThreadServer) -> None:
    port = server.port
    server.close()
    second_server = serve(("127.0.0.1", port), {"/metrics": lambda: b"b 2\n"})
    assert got(second_server)[2] == b"b 2\n"
    second_server.close()
