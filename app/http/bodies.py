"""Reads a whole body: no longer than it may be, no later than it may be, and counted while it is held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from app.http import metrics
from app.http.lanes import KIB, MIB
from app.http.shares import FairShares
from app.problem import HttpProblem

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BUSY_SECONDS = "1"


class Disconnected(Exception):
    """The client went away in the middle of its body."""


class HeldBody:
    """The bytes of one request, and the place they take in the ledger until `release`."""

    __slots__ = ("_held", "_holder", "_ledger", "data")

    def __init__(self, ledger: FairShares, holder: str) -> None:
        self.data = b""
        self._ledger = ledger
        self._holder = holder
        self._held = 0

    async def read(self, receive: Receive, length: int | None, limit: int, seconds: float) -> None:
        """`length` is the declared one, None for a chunked body."""
        if length is not None:
            if length > limit:
                raise too_large(limit)
            self._hold(length)
        pieces: list[bytes] = []
        total = 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    piece: bytes = message.get("body", b"")
                    total += len(piece)
                    if total > limit:
                        raise too_large(limit)
                    if length is None:
                        self._hold(len(piece))
                    if not message.get("more_body", False):
                        break
                    pieces.append(piece)
        except TimeoutError:
            metrics.REFUSED_BODIES.labels("too-slow").inc()
            raise HttpProblem("request-timeout", f"the body did not arrive within {seconds:g} seconds") from None
        self.data = b"".join((*pieces, piece)) if pieces else piece

    def release(self) -> None:
        if self._held:
            self._ledger.give(self._holder, self._held)
            self._held = 0

    def _hold(self, amount: int) -> None:
        if not self._ledger.take(self._holder, amount):
            metrics.REFUSED_BODIES.labels("busy").inc()
            raise HttpProblem(
                "unavailable",
                "the bodies of other requests fill the server's buffer; send this request again shortly",
                headers={"Retry-After": BUSY_SECONDS},
            )
        self._held += amount


def too_large(limit: int) -> HttpProblem:
    metrics.REFUSED_BODIES.labels("too-large").inc()
    shown = f"{limit // MIB} MiB" if limit >= MIB else f"{limit // KIB} KiB"
    return HttpProblem("too-large", f"the body is over the {shown} that this path takes")
