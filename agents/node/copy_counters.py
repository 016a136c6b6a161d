"""What each copy has served, from the gateway where there is one, else from the copies themselves."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.filler import Filler
from agents.node.report_minute import CopyTotals, since
from agents.seams.routes import RoutesAway
from agents.seams.traffic import Counters, Served
from agents.talk.copy_client import CopyClient

COPIES_SECONDS = 30.0  # between two looks at a copy's own metrics; a third of it where nobody else counts
WINDOW_SECONDS = 5.0  # that a latency is taken over
SLOW_SECONDS = 0.5  # a copy that takes longer to answer holds up the look at every device,
REST_TIMES = 20  # so it is left alone for so many times as long, and longer each time,
LONGEST_REST_SECONDS = 600.0  # and who else would be asked in this look is asked in the next
GATEWAY_REST_SECONDS = 5.0  # of a gateway that did not answer: it, too, would hold up the look at every device

GatewayCounters = Callable[[], Mapping[str, Counters]]


class CopyCounters:
    """The newest totals of each copy, and those of a few seconds ago."""

    def __init__(self, talk: CopyClient, filler: Filler, gateway: GatewayCounters | None) -> None:
        self._talk = talk
        self._filler = filler
        self._gateway = gateway
        self._served: dict[str, Served | None] = {}
        self._asked: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._rests: dict[str, tuple[float, float]] = {}  # slow copies: until when, and for how long
        self._counters: Mapping[str, Counters] = {}
        self._gateway_rests_until = float("-inf")
        self._history: deque[tuple[float, Mapping[str, Counters]]] = deque()
        self.totals: dict[str, CopyTotals] = {}

    def refresh(self, copies: Collection[NodeCopy], now: float, eager: Collection[str] = ()) -> None:
        """Ask who is due, and every copy on the GPUs in `eager`; what does not answer keeps what it said last."""
        if self._gateway is not None and now >= self._gateway_rests_until:
            try:
                self._counters = self._gateway()
            except RoutesAway:
                self._gateway_rests_until = now + GATEWAY_REST_SECONDS
        period = COPIES_SECONDS if self._gateway is not None else COPIES_SECONDS / 3
        here = [copy for copy in copies if copy.running is not None and copy.stage is not Stage.STARTING]
        awake = [copy for copy in here if now >= self._rests.get(copy.id, (0.0, 0.0))[0]]
        due = [copy for copy in awake if now - self._asked.get(copy.id, 0.0) >= period]
        # A few at a time: forty at once would be a burst every half minute.
        first = sorted(due, key=lambda copy: self._asked.get(copy.id, 0.0))[: max(2, len(here) // 8)]
        began = time.monotonic()
        for copy in {copy.id: copy for copy in [*first, *(copy for copy in awake if copy.gpu in eager)]}.values():
            self._ask(copy, now)
            if time.monotonic() - began > SLOW_SECONDS:
                break
        self.totals = {copy.id: self._told(copy) for copy in here}
        for gone in self._asked.keys() - {copy.id for copy in copies}:
            self._asked.pop(gone)
            self._served.pop(gone, None)
            self._busy.pop(gone, None)
            self._rests.pop(gone, None)
        self._history.append((now, {name: told.counters for name, told in self.totals.items()}))
        while now - self._history[0][0] > WINDOW_SECONDS:
            self._history.popleft()

    def busy(self, copy: str) -> float | None:
        """The part of the time between the last two looks at it in which the copy computed."""
        return self._busy.get(copy)

    def _ask(self, copy: NodeCopy, now: float) -> None:
        asked_at, self._asked[copy.id] = self._asked.get(copy.id, 0.0), now
        filled = self._filler.filled(copy)
        if filled is None or filled.metrics is None:
            return
        began = time.monotonic()
        before, served = self._served.get(copy.id), self._talk.served(copy.port, filled)
        spent = time.monotonic() - began
        if spent > SLOW_SECONDS:
            rest = min(LONGEST_REST_SECONDS, max(REST_TIMES * spent, 2 * self._rests.get(copy.id, (0.0, 0.0))[1]))
            self._rests[copy.id] = (now + rest, rest)
        else:
            self._rests.pop(copy.id, None)
        self._served[copy.id] = served or before
        if served and before and served.busy_seconds is not None and before.busy_seconds is not None:
            part = (served.busy_seconds - before.busy_seconds) / max(now - asked_at, 1e-3)
            self._busy[copy.id] = min(1.0, max(0.0, part))

    def lately(self, copy: str) -> Counters:
        """What the copy served in the last few seconds."""
        now = self.totals.get(copy)
        if now is None:
            return Counters()
        return since(now.counters, self._history[0][1].get(copy, now.counters) if self._history else now.counters)

    def served(self, copy: str) -> Served | None:
        return self._served.get(copy)

    def _told(self, copy: NodeCopy) -> CopyTotals:
        served = self._served.get(copy.id)
        if not copy.served:
            return CopyTotals(Counters(), "", served)
        if self._gateway is not None:
            return CopyTotals(self._counters.get(copy.id, Counters()), "gateway", served)
        return CopyTotals(served.counters if served else Counters(), "server-side", served)
