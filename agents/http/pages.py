"""A few read-only pages for a handful of callers at once."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping

from agents.http.messages import HttpRequest
from agents.http.threads import HttpAnswer, ServerLimits, ThreadServer

LIMITS = ServerLimits(connections=4, seconds=2.0, body_bytes=8192)
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

log = logging.getLogger(__name__)


def serve(address: tuple[str, int], pages: Mapping[str, Callable[[], bytes]]) -> ThreadServer:
    """Serves `pages`, by path, at the address; port 0 lets the kernel choose. OSError when it is in use."""

    def answer(request: HttpRequest) -> HttpAnswer:
        path = request.path.partition("?")[0]
        page = pages.get(path)
        if page is None:
            return _answer(404, f"unknown page; known: {', '.join(pages)}\n".encode())
        if request.method not in ("GET", "HEAD"):
            return _answer(405, b"only GET and HEAD are allowed\n")
        try:
            return _answer(200, page())
        except Exception:
            log.exception("page %s failed", path)
            return _answer(500, b"internal error; see the log\n")

    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.create_server(address, family=family, backlog=16)
    return ThreadServer(listener, answer, lambda bad: _answer(bad.status, f"{bad}\n".encode()), LIMITS)


def _answer(status: int, text: bytes) -> HttpAnswer:
    return HttpAnswer(status, text, METRICS_TYPE, close=True)  # a caller who stays would keep one of few places
