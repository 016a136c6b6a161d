"""What this node tells the gateway, and what the gateway has said last."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait

from agents.keeper.copies import ROUTED, NodeCopy, Stage
from agents.seams.routes import Acknowledged, Route, Routes, RoutesAway, RouteState

AGAIN_SECONDS = 5.0  # it may have lost what it knew
WATCH_SECONDS = 0.1  # while open requests are waited for
LONGEST_PAUSE_SECONDS = 2.0
HANG_SECONDS = 0.5  # without an answer, and the keeper turns to the rest of its work

log = logging.getLogger(__name__)


def routes_of(copies: Collection[NodeCopy], host: str, dead: Collection[str] = ()) -> tuple[Route, ...]:
    """Every copy that may get requests, or may still have some. A process that is dead answers none."""
    return tuple(
        Route(
            copy.id,
            copy.service,
            f"{host}:{copy.port}",
            max(copy.wanted.rate_per_second, 1e-6),
            drained=copy.stage in (Stage.DRAINING, Stage.ENDING),
        )
        for copy in sorted(copies, key=lambda copy: copy.id)
        if copy.served and copy.stage in ROUTED and copy.id not in dead
    )


class GatewayRoutes:
    """Declares routes when they change, and again every few seconds."""

    def __init__(self, gateway: Routes, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._monotonic = monotonic
        self._said: tuple[Route, ...] | None = None
        self._said_at = float("-inf")
        self._acknowledged = Acknowledged(())
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="gateway")
        self._asked: tuple[tuple[Route, ...], Future[Acknowledged]] | None = None
        self._pause = 0.0
        self.away = ""  # why the gateway does not acknowledge; empty when it does

    def bring_up_to_date(self, routes: tuple[Route, ...]) -> None:
        """Have `routes` in force, or know that they may not be. A gateway that hangs is waited for beside us."""
        now = self._monotonic()
        if self._asked is not None and not self._heard(0.0):
            return
        watched = any(route.drained for route in routes)
        due = AGAIN_SECONDS if not watched else WATCH_SECONDS
        if routes == self._said and now - self._said_at < due:
            return
        if self.away and now - self._said_at < self._pause:
            return
        self._said_at = now
        self._asked = (routes, self._asking.submit(self._gateway.declare, routes))
        self._heard(HANG_SECONDS)

    def close(self) -> None:
        """Ask no more; an answer that is waited for is nobody's."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    def _heard(self, seconds: float) -> bool:
        """Whether the answer to what was asked is there within so long; if so it is taken up."""
        assert self._asked is not None
        routes, asked = self._asked
        wait((asked,), seconds)
        if not asked.done():
            self._is_away("it has not answered yet")
            return False
        self._asked = None
        try:
            self._acknowledged = asked.result()
        except RoutesAway as error:
            self._is_away(str(error))
            self._pause = min(max(0.1, self._pause * 2), LONGEST_PAUSE_SECONDS)
        else:
            if self.away:
                log.info("the gateway acknowledges again")
            self._said, self._pause, self.away = routes, 0.0, ""
        return True

    def _is_away(self, why: str) -> None:
        if not self.away:
            log.warning("the gateway does not acknowledge, so no copy takes another's place: %s", why)
        self._said, self.away = None, why

    def in_force(self, copy: NodeCopy) -> RouteState | None:
        """How the gateway treats the copy, if it has acknowledged what we said of it."""
        return self._acknowledged.of(copy.id) if self._said is not None and not self.away else None

    def forgotten(self, copy: NodeCopy) -> bool:
        """Whether the gateway has acknowledged that the copy is no route any more."""
        return self._said is not None and not self.away and all(route.copy != copy.id for route in self._said)

    def drained(self, copy: NodeCopy) -> bool:
        """Whether the copy has answered its last request."""
        state = self.in_force(copy)
        said = self._said or ()
        if any(route.copy == copy.id and not route.drained for route in said):
            return False  # the acknowledgement is of the time before
        return self.forgotten(copy) or (state is not None and not state.ready and state.open_requests == 0)
