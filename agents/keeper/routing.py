"""Declares this node's routes to the gateway, and keeps the gateway's last acknowledgement."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait

from agents.keeper.copies import ROUTED, NodeCopy, Stage
from agents.seams.routes import Acknowledged, Route, Routes, RoutesAway, RouteState

REPEAT_SECONDS = 5.0  # the gateway may have lost its state
WATCH_SECONDS = 0.1  # while a copy finishes its open requests
NOT_READY_SECONDS = 0.5  # while the gateway does not send requests to a copy yet
LONGEST_PAUSE_SECONDS = 2.0
HANG_SECONDS = 0.5  # then the keeper goes on with its other work while the gateway has not answered

log = logging.getLogger(__name__)


def list_routes(
    copies: Collection[NodeCopy],
    host: str,
    paths_of: Callable[[NodeCopy], tuple[str, ...] | None],
    dead: Collection[str],
) -> tuple[Route, ...]:
    """Returns a route for every copy that may get requests or may still have open ones; dead processes get none."""
    return tuple(
        Route(
            copy.id,
            copy.service,
            copy.listens_at.on(host).spell(),
            max(copy.wanted.rate_per_second, 1e-6),
            drained=copy.stage in (Stage.DRAINING, Stage.ENDING),
            paths=paths_of(copy),
        )
        for copy in sorted(copies, key=lambda copy: copy.id)
        if copy.served and copy.stage in ROUTED and copy.id not in dead
    )


class GatewayRoutes:
    """Declares routes when they change, and repeats the declaration every few seconds."""

    def __init__(self, gateway: Routes, monotonic: Callable[[], float]) -> None:
        self._gateway = gateway
        self._monotonic = monotonic
        self._declared: tuple[Route, ...] | None = None
        self._declared_at = float("-inf")
        self._acknowledged = Acknowledged(())
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="gateway")
        self._pending: tuple[tuple[Route, ...], Future[Acknowledged]] | None = None
        self._pause = 0.0
        self.away = ""  # why the gateway does not acknowledge; empty when it does

    def bring_up_to_date(self, routes: tuple[Route, ...]) -> None:
        """Puts `routes` in force, or notes that they may not be. A slow gateway is waited for on another thread."""
        now = self._monotonic()
        if self._pending is not None and not self._take_answer(0.0):
            return
        due = self._repeat_seconds(routes)
        if routes == self._declared and now - self._declared_at < due:
            return
        if self.away and now - self._declared_at < self._pause:
            return
        self._declared_at = now
        self._pending = (routes, self._executor.submit(self._gateway.declare, routes))
        self._take_answer(HANG_SECONDS)

    def _repeat_seconds(self, routes: tuple[Route, ...]) -> float:
        """Returns after how long an unchanged declaration is repeated: soon while something is waited for."""
        if any(route.drained for route in routes):
            return WATCH_SECONDS
        ready = {state.copy for state in self._acknowledged.routes if state.ready}
        return REPEAT_SECONDS if all(route.copy in ready for route in routes) else NOT_READY_SECONDS

    def close(self) -> None:
        """Stops declaring; an answer that is still due is ignored."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _take_answer(self, seconds: float) -> bool:
        """Waits up to `seconds` for the pending answer and applies it; returns whether it came."""
        assert self._pending is not None
        routes, pending = self._pending
        wait((pending,), seconds)
        if not pending.done():
            self._note_away("no answer yet")
            return False
        self._pending = None
        try:
            self._acknowledged = pending.result()
        except RoutesAway as error:
            self._note_away(str(error))
            self._pause = min(max(0.1, self._pause * 2), LONGEST_PAUSE_SECONDS)
        else:
            if self.away:
                log.info("the gateway acknowledges routes again")
            self._declared, self._pause, self.away = routes, 0.0, ""
        return True

    def _note_away(self, why: str) -> None:
        if not self.away:
            log.warning("the gateway does not acknowledge routes, so no copy replaces another: %s", why)
        self._declared, self.away = None, why

    def in_force(self, copy: NodeCopy) -> RouteState | None:
        """Returns how the gateway treats the copy, if it has acknowledged our last declaration."""
        return self._acknowledged.of(copy.id) if self._declared is not None and not self.away else None

    def is_forgotten(self, copy: NodeCopy) -> bool:
        """Returns whether the gateway has acknowledged that it no longer routes to the copy."""
        return self._declared is not None and not self.away and all(route.copy != copy.id for route in self._declared)

    def closed(self, copy: NodeCopy) -> bool:
        """Returns whether the gateway has acknowledged, after the drain, that the copy gets no new requests."""
        state = self.in_force(copy)
        declared = self._declared or ()
        if any(route.copy == copy.id and not route.drained for route in declared):
            return False  # the acknowledgement predates the drain
        return self.is_forgotten(copy) or (state is not None and not state.ready)

    def drained(self, copy: NodeCopy) -> bool:
        """Returns whether the copy has answered its last request."""
        state = self.in_force(copy)
        return self.closed(copy) and (state is None or state.open_requests == 0)
