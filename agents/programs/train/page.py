"""The two pages of a job, /healthz and /metrics, by a thread that answers one caller after another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

CALLER_SECONDS = 2.0  # a slow caller is cut off: the next one waits for it
LONGEST_REQUEST = 8192


def open_page(host: str, port: int, metrics: Callable[[], str]) -> int:
    """Answer from now on; gives the port, chosen by the kernel where `port` is 0."""
    listening = socket.create_server((host, port), backlog=16)
    threading.Thread(target=_answer, args=(listening, metrics), name="page", daemon=True).start()
    chosen: int = listening.getsockname()[1]
    return chosen


def _answer(listening: socket.socket, metrics: Callable[[], str]) -> None:
    while True:
        try:
            caller, _ = listening.accept()
        except OSError:
            continue  # it was gone before it was taken
        with caller, suppress(OSError):
            caller.settimeout(CALLER_SECONDS)
            request = b""
            while b"\r\n\r\n" not in request and len(request) < LONGEST_REQUEST:
                part = caller.recv(LONGEST_REQUEST)
                if not part:
                    break
                request += part
            status, body = _page(request.partition(b"\r\n")[0], metrics)
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
            caller.sendall(f"{head}Connection: close\r\n\r\n{body}".encode())


def _page(request: bytes, metrics: Callable[[], str]) -> tuple[str, str]:
    match request.split(b" ")[:2]:
        case [b"GET", b"/healthz"]:
            return "200 OK", "ok\n"
        case [b"GET", b"/metrics"]:
            return "200 OK", metrics()
    return "404 Not Found", "there is /healthz and /metrics\n"
