"""Collects what each copy has served, from the gateway if there is one, else from the copies themselves."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from agents.keeper.copies import AWAY, NodeCopy, Stage
from agents.keeper.filler import Filler
from agents.node.report_minute import CopyTotals, ReportMinute, count_within, subtract_counters
from agents.seams.routes import RoutesAway
from agents.seams.traffic import Counters, Served
from agents.talk.copy_client import CopyClient
from agents.talk.scraping import job_served
from agents.templates import Filled, Probe

COPIES_SECONDS = 30.0  # between two reads of a copy's own metrics; a third of it without a gateway
WINDOW_SECONDS = 5.0  # over which latencies are measured
SLOW_SECONDS = 0.5  # a copy that answers slower delays the reading of every device, and ends this round of questions
PAUSE_FACTOR = 20  # a slow copy is not asked for this many times its answer's duration, doubled each time
LONGEST_PAUSE_SECONDS = 600.0
GATEWAY_PAUSE_SECONDS = 5.0  # after a gateway did not answer, which delays the reading of every device, too

METRICS = Probe("GET", "/metrics")  # of a job whose template names no other

GatewayCounters = Callable[[], Mapping[str, Counters]]


class CopyCounters:
    """Keeps the newest totals of each copy, and those of a few seconds ago."""

    def __init__(
        self,
        talk: CopyClient,
        filler: Filler,
        gateway: GatewayCounters | None,
        on_first_progress: Callable[[], object] = bool,
    ) -> None:
        self._talk = talk
        self._filler = filler
        self._gateway = gateway
        self._on_first_progress = on_first_progress  # called when a job's process is first seen to have done something
        self._progressed: set[str] = set()  # jobs that were
        self._served: dict[str, Served | None] = {}
        self._asked_at: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._paused: dict[str, tuple[float, float]] = {}  # slow copies: paused until when, and for how long
        self._counters: Mapping[str, Counters] = {}
        self._gateway_paused_until = float("-inf")
        self._gateway_answered = False
        self._counters_due: set[str] = set()  # copies of an earlier agent whose counters were not read yet
        self._served_due: set[str] = set()  # copies of an earlier agent that have not reported themselves yet
        self._history: deque[tuple[float, Mapping[str, Counters]]] = deque()
        self._saved_at: dict[str, float] = {}  # of jobs: when the reported save last changed, or all was saved
        self.totals: dict[str, CopyTotals] = {}

    def take_over(self, copies: Iterable[str]) -> None:
        """Notes copies that an earlier agent started: their totals include what that agent has reported."""
        names = set(copies)
        self._counters_due |= names
        self._served_due |= names

    def refresh(
        self, copies: Collection[NodeCopy], now: float, minute: ReportMinute, eager: Collection[str] = ()
    ) -> None:
        """Asks the copies that are due and all on the GPUs in `eager`; without an answer the last totals stay.

        `minute` leaves out what copies of an earlier agent had counted before their first reading.
        """
        if self._gateway is not None and now >= self._gateway_paused_until:
            try:
                self._counters, self._gateway_answered = self._gateway(), True
            except RoutesAway:
                self._gateway_paused_until = now + GATEWAY_PAUSE_SECONDS
        period = COPIES_SECONDS if self._gateway is not None else COPIES_SECONDS / 3
        here = [copy for copy in copies if copy.running is not None and copy.stage is not Stage.STARTING]
        running = [copy for copy in here if copy.stage not in (*AWAY, Stage.RETURNING)]  # a stopped one answers nothing
        awake = [copy for copy in running if now >= self._paused.get(copy.id, (0.0, 0.0))[0]]
        due = [copy for copy in awake if now - self._asked_at.get(copy.id, 0.0) >= period]
        # A few at a time: asking forty at once would cause a burst every half minute.
        first = sorted(due, key=lambda copy: self._asked_at.get(copy.id, 0.0))[: max(2, len(here) // 8)]
        began = time.monotonic()
        for copy in {copy.id: copy for copy in [*first, *(copy for copy in awake if copy.gpu in eager)]}.values():
            self._ask(copy, now)
            if time.monotonic() - began > SLOW_SECONDS:
                break
        for copy in here:
            if copy.wanted.job:
                self._read_progress(copy, now)
        totals = {copy.id: self._totals_of(copy) for copy in here}
        self._leave_out_inherited(totals, minute)  # before anything can be reported
        self.totals = totals
        progressed = {copy.id for copy in here if copy.wanted.job and self.units(copy.id)}
        if progressed - self._progressed:
            self._on_first_progress()
        self._progressed = progressed
        for gone in self._asked_at.keys() - {copy.id for copy in copies}:
            self._asked_at.pop(gone)
            self._served.pop(gone, None)
            self._busy.pop(gone, None)
            self._paused.pop(gone, None)
            self._saved_at.pop(gone, None)
            self._counters_due.discard(gone)
            self._served_due.discard(gone)
        self._history.append((now, {name: totals.counters for name, totals in self.totals.items()}))
        while now - self._history[0][0] > WINDOW_SECONDS:
            self._history.popleft()

    def units(self, copy: str) -> float:
        """Returns a job's units by its newest answer; 0 without an answer."""
        served = self._served.get(copy)
        return (served.steps if served else None) or 0.0

    def unsaved_seconds(self, copy: str, now: float) -> float:
        """Returns for how long a job has worked since the last save that it reported."""
        return max(0.0, now - self._saved_at[copy]) if copy in self._saved_at else 0.0

    def busy(self, copy: str) -> float | None:
        """Returns the share of the time between its last two answers in which the copy computed."""
        return self._busy.get(copy)

    def _leave_out_inherited(self, totals: Mapping[str, CopyTotals], minute: ReportMinute) -> None:
        for name in self._counters_due & totals.keys():
            is_read = self._served.get(name) is not None if self._gateway is None else self._gateway_answered
            if is_read:
                self._counters_due.discard(name)
                minute.skip(name, counters=totals[name].counters)
        for name in self._served_due & totals.keys():
            if (served := self._served.get(name)) is not None:
                self._served_due.discard(name)
                minute.skip(name, served=served)

    def _read_progress(self, copy: NodeCopy, now: float) -> None:
        """Takes the progress that a job has written to its file: it costs no request, so it is read in every round."""
        files = self._filler.job_files(copy.wanted)
        written = files.read() if files else None
        before = self._served.get(copy.id)
        if written is not None:
            known = before or Served(Counters())
            self._served[copy.id] = replace(known, steps=written.units, saved_steps=written.saved)
            self._asked_at.setdefault(copy.id, 0.0)
        after = self._served.get(copy.id)
        saved = after.saved_steps if after else None
        is_saved = after is not None and after.steps is not None and after.steps == saved
        if is_saved or copy.id not in self._saved_at or (before is not None and before.saved_steps != saved):
            self._saved_at[copy.id] = now

    def _ask(self, copy: NodeCopy, now: float) -> None:
        asked_at, self._asked_at[copy.id] = self._asked_at.get(copy.id, 0.0), now
        filled = self._filler.filled(copy)
        if filled is None or (filled.metrics is None and not _metric(copy)):
            return
        began = time.monotonic()
        before, served = self._served.get(copy.id), self._ask_copy(copy, filled)
        spent = time.monotonic() - began
        if spent > SLOW_SECONDS:
            pause = min(LONGEST_PAUSE_SECONDS, max(PAUSE_FACTOR * spent, 2 * self._paused.get(copy.id, (0.0, 0.0))[1]))
            self._paused[copy.id] = (now + pause, pause)
        else:
            self._paused.pop(copy.id, None)
        self._served[copy.id] = served or before
        if served and before and served.busy_seconds is not None and before.busy_seconds is not None:
            part = (served.busy_seconds - before.busy_seconds) / max(now - asked_at, 1e-3)
            self._busy[copy.id] = min(1.0, max(0.0, part))

    def _ask_copy(self, copy: NodeCopy, filled: Filled) -> Served | None:
        """Asks the copy for its counts; a job may name the metrics that count its units."""
        metric = _metric(copy)
        if not metric or copy.wanted.terms is None:
            return self._talk.served(copy.listens_at, filled)
        reply = self._talk.ask(copy.listens_at, filled.metrics or METRICS)
        return job_served(reply.body, metric, copy.wanted.terms.saved_metric) if reply.ok else None

    def recent(self, copy: str) -> Counters:
        """Returns what the copy served in the last few seconds."""
        now = self.totals.get(copy)
        if now is None:
            return Counters()
        return subtract_counters(
            now.counters, self._history[0][1].get(copy, now.counters) if self._history else now.counters
        )

    def served(self, copy: str) -> Served | None:
        return self._served.get(copy)

    def _totals_of(self, copy: NodeCopy) -> CopyTotals:
        served = self._served.get(copy.id)
        if not copy.served:
            return CopyTotals(Counters(), "", served)
        if self._gateway is not None:
            return CopyTotals(self._counters.get(copy.id, Counters()), "gateway", served)
        return CopyTotals(count_as_promised(served, copy.wanted.tpot_ms), "server-side", served)


def count_as_promised(served: Served | None, tpot_ms: float) -> Counters:
    """Returns a copy's own counts. A promise of tokens needs times to first tokens, and answers beyond the pace."""
    counted = served.counters if served else Counters()
    if served is None or served.tokens is None or not tpot_ms:
        return counted
    tokens = served.tokens
    paced = sum(tokens.pace_counts)
    late = max(0, round(paced - count_within(tokens.pace_counts, tpot_ms)))
    return replace(counted, latency_counts=tokens.first_counts, paced=paced, pace_late=late)


def _metric(copy: NodeCopy) -> str:
    """Returns the metric that counts a job's units; empty: a file does."""
    return copy.wanted.terms.progress_metric if copy.wanted.terms else ""
