"""Asks servers by HTTP: no redirect is followed, and no answer is larger, or takes longer in all, than it may."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Timer
from typing import Any


class AnswerRefused(Exception):
    """An answer is too large, takes too long, or is a page for people; the message says which."""

    def __init__(self, reason: str, *, is_page: bool = False) -> None:
        super().__init__(reason)
        self.is_page = is_page


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token is for the server that the user named."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _NotingHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Notes the socket of each connection, so that it can be cut."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, request: urllib.request.Request) -> Any:
        return self._open(http.client.HTTPConnection, request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self._open(http.client.HTTPSConnection, request)

    def _open(self, kind: type[http.client.HTTPConnection], request: urllib.request.Request) -> Any:
        def make(host: str, **options: Any) -> http.client.HTTPConnection:
            connection = kind(host, **options)
            connect = connection.connect

            def connect_and_note() -> None:
                connect()
                self._sockets.append(connection.sock)

            connection.connect = connect_and_note  # type: ignore[method-assign]
            return connection

        return self.do_open(make, request)


@contextmanager
def open_answer(request: urllib.request.Request, seconds: float) -> Iterator[Any]:
    """Yields the answer of a server; urllib's errors, HTTPError for statuses from 300 on.

    A server that sends a byte now and then never meets a timeout, so after so many seconds the connection is cut.
    """
    sockets: list[socket.socket] = []
    late = Event()
    opener = urllib.request.build_opener(_NoRedirect, _NotingHandler(sockets))
    timer = Timer(seconds, _cut, (sockets, late))
    timer.daemon = True
    timer.start()
    try:
        with opener.open(request, timeout=seconds) as answer:
            _refuse_late(late, seconds)  # headers that were cut look whole
            yield answer
    except (OSError, http.client.HTTPException):
        _refuse_late(late, seconds)
        raise
    finally:
        timer.cancel()


def _cut(sockets: list[socket.socket], late: Event) -> None:
    late.set()
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _refuse_late(late: Event, seconds: float) -> None:
    if late.is_set():
        raise AnswerRefused(f"its answer took longer than {seconds:.0f} s")


def read_body(answer: Any, most_bytes: int, seconds: float) -> bytes:
    """Returns the body of an answer that is neither too large nor takes too long in all; IncompleteRead if cut off."""
    found, until = bytearray(), time.monotonic() + seconds
    while part := answer.read1(2**16):
        found += part
        if len(found) > most_bytes:
            raise AnswerRefused(f"its answer is larger than {most_bytes >> 20} MB")
        if time.monotonic() > until:
            raise AnswerRefused(f"its answer took longer than {seconds:.0f} s")
    if answer.length:
        raise http.client.IncompleteRead(bytes(found), answer.length)
    return bytes(found)


def refuse_page(content_type: str) -> None:
    """Refuses what a proxy shows to people, before its text is read as data."""
    if content_type == "text/html":
        raise AnswerRefused("it answered with a page for people, as where one signs in", is_page=True)
