"""Reads a whole body within its limits of length, time and rate, and counts its bytes while it is held."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from app.http import metrics
from app.http.lanes import KIB, MIB
from app.http.shares import FairShares
from app.problem import HttpProblem

BUSY_SECONDS = "1"
# A body that brings less than this in any part of its time is refused: holding its memory would cost a client nothing.
PIECE_BYTES = 64 * KIB
PIECES_IN_TIME = 4  # the parts of the time for a whole body


class Disconnected(Exception):
    """The client disconnected in the middle of its body."""


class HeldBody:
    """The bytes of a request, which count towards its caller's share until `release`."""

    __slots__ = ("_held", "_holder", "_ledger", "data")

    def __init__(self, ledger: FairShares, holder: str) -> None:
        self.data = b""
        self._ledger = ledger
        self._holder = holder
        self._held = 0

    async def read(self, receive: Receive, length: int | None, limit: int, seconds: float) -> None:
        """Reads a body; `length` is the declared one, None for a chunked body. Bytes count as they arrive."""
        if length is not None and length > limit:
            raise too_large(limit)
        pieces: list[bytes] = []
        total = counted = 0
        clock = asyncio.get_running_loop().time
        end, piece_seconds = clock() + seconds, seconds / PIECES_IN_TIME
        try:
            async with asyncio.timeout_at(clock() + piece_seconds) as deadline:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    piece: bytes = message.get("body", b"")
                    total += len(piece)
                    if total > limit:
                        raise too_large(limit)
                    self._hold(len(piece))
                    if total - counted >= PIECE_BYTES:
                        counted = total
                        deadline.reschedule(min(end, clock() + piece_seconds))
                    if not message.get("more_body", False):
                        break
                    pieces.append(piece)
        except TimeoutError:
            metrics.REFUSED_BODIES.labels("too-slow").inc()
            detail = f"the body did not arrive within {seconds:g} seconds"
            if clock() < end:
                detail = f"the body arrived slower than {PIECE_BYTES // KIB} KiB in {piece_seconds:g} seconds"
            raise HttpProblem("request-timeout", detail) from None
        self.data = b"".join((*pieces, piece)) if pieces else piece

    @staticmethod
    def busy() -> HttpProblem:
        metrics.REFUSED_BODIES.labels("busy").inc()
        return HttpProblem(
            "unavailable",
            "the bodies of other requests fill the server's buffer; send this request again shortly",
            headers={"Retry-After": BUSY_SECONDS},
        )

    def release(self) -> None:
        if self._held:
            self._ledger.give(self._holder, self._held)
            self._held = 0

    def _hold(self, amount: int) -> None:
        if amount and not self._ledger.take(self._holder, amount):
            raise self.busy()
        self._held += amount


def too_large(limit: int) -> HttpProblem:
    metrics.REFUSED_BODIES.labels("too-large").inc()
    shown = f"{limit // MIB} MiB" if limit >= MIB else f"{limit // KIB} KiB"
    return HttpProblem("too-large", f"the body is over the {shown} that this path takes")


def replay(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` for a route that reads the body itself; after the body it waits for the client to leave."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
