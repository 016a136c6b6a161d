"""What every service is asked: taken from what was heard, remembered for half an hour, and looked ahead from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from app.control.domain.snapshot import ExpectedLoad
from app.control.observe.loads.differences import CountedSpan, GatewayTotals, NodeTotals
from app.control.observe.loads.recent import RecentLoad, summarize_recent
from app.control.observe.loads.reports import ReportBatch, ReportCursor
from app.control.observe.loads.window import GATEWAY, NODE, LoadWindow
from app.store.fleet.loads import LoadBucket, LoadHistory
from solvers.forecast import Forecaster, ForecastTuning, Sample, expect

SILENT_SECONDS = {GATEWAY: 10.0, NODE: 60.0}  # a speaker's last word stands for so long
LONGEST_SECONDS = 60.0  # between two looks; of more, nobody knows
SAME = 1e-4  # relative: rates add up over instances


@dataclass(slots=True)
class _Sender:
    """A node or gateway that speaks of services."""

    totals: NodeTotals | GatewayTotals
    heard_at: float = 0.0
    services: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _LastForecast:
    """What was expected of a service last, and what it was said on."""

    rate: float
    planned: float
    declared: float
    risen_at: float


class Loads:
    """What is heard of all services. Not for several threads at once."""

    def __init__(self, settings: ForecastTuning | None = None, forecaster: Forecaster = expect) -> None:
        self.settings = settings or ForecastTuning()
        self.cursor = ReportCursor()
        self.dropped = 0  # counts that cannot be
        self._forecaster = forecaster
        self._windows: dict[str, LoadWindow] = {}
        self._speakers: dict[str, dict[str, _Sender]] = {GATEWAY: {}, NODE: {}}
        self._said: dict[str, _LastForecast] = {}
        self._last: float | None = None
        self._full: list[LoadBucket] = []

    def restore(self, courses: Iterable[LoadHistory]) -> None:
        """Begin with what an earlier leader kept."""
        for course in courses:
            window = self._window(course.service)
            window.observed_seconds = max(window.observed_seconds, course.observed_seconds)
            if not window.samples:
                window.samples.extend(map(Sample, course.ats, course.seconds, course.requests))
                window.heard_at = max(window.heard_at, course.ats[-1]) if course.ats else 0.0

    def set_slos(self, slos_ms: Mapping[str, float], percentiles: Mapping[str, float] | None = None) -> None:
        """The SLOs that answers are held against."""
        for service, slo_ms in slos_ms.items():
            window = self._window(service)
            window.slo_ms = slo_ms
            window.percentile = (percentiles or {}).get(service, 0.0)

    def take(self, readings: ReportBatch, now: datetime | None = None) -> None:
        """Add what was heard; rates stand from here on, until the speaker's next word."""
        at = (now or readings.at).timestamp()
        self.cursor = readings.cursor
        self.dropped += readings.unreadable
        for told in readings.gateways:
            speaker = self._speakers[GATEWAY].setdefault(told.gateway, _Sender(GatewayTotals()))
            if isinstance(speaker.totals, GatewayTotals):
                self._add(GATEWAY, told.gateway, speaker, speaker.totals.next(told.received_at, told.counts), at)
        for heard in readings.reports:
            speaker = self._speakers[NODE].setdefault(heard.word.node, _Sender(NodeTotals()))
            if isinstance(speaker.totals, NodeTotals):
                self._add(NODE, heard.word.node, speaker, speaker.totals.next(heard.word), at)
        self._forget_silent(at)
        if self._last is not None and at - self._last > 0:
            last = max(self._last, at - LONGEST_SECONDS)
            for window in self._windows.values():
                full = window.passed(last, at)
                if full:
                    self._full.append(full)
        self._last = max(at, self._last or at)

    def expect(
        self, declared: Mapping[str, float], planned: Mapping[str, float], ahead: Mapping[str, float], now: datetime
    ) -> dict[str, ExpectedLoad]:
        """What each declared service will be asked. What was expected before stands until there is news."""
        for gone in [name for name, window in self._windows.items() if name not in declared and not window.is_spoken]:
            del self._windows[gone]
            self._said.pop(gone, None)
        return {
            service: self._expected(service, rate, planned.get(service, 0.0), ahead.get(service, 60.0), now.timestamp())
            for service, rate in declared.items()
        }

    def recent(self, service: str) -> RecentLoad | None:
        """The last seconds of a service; None where nobody speaks of it."""
        window = self._windows.get(service)
        if window is None or not window.rates[window.source]:
            return None
        return summarize_recent(
            window.rate, tuple(window.answers), window.slo_ms > 0, (self._last or 0.0) - window.heard_at
        )

    def shed_since(self, moment: datetime) -> set[str]:
        """Services of which requests were turned away since then."""
        return {name for name, window in self._windows.items() if window.shed_at >= moment.timestamp()}

    @property
    def services(self) -> list[str]:
        """All that anybody spoke of, or that something was promised to."""
        return list(self._windows)

    def full(self) -> list[LoadBucket]:
        """Buckets to be kept; each is given once."""
        full, self._full = self._full, []
        return full

    def _window(self, service: str) -> LoadWindow:
        window = self._windows.get(service)
        if window is None:
            window = self._windows[service] = LoadWindow(service)
        return window

    def _add(self, source: str, name: str, speaker: _Sender, span: CountedSpan | None, now: float) -> None:
        if span is None:
            return
        self.dropped += span.lies
        speaker.heard_at = now
        if span.seconds <= 0:
            return
        for service in speaker.services - span.rates.keys():
            self._window(service).rates[source].pop(name, None)
        for service, rate in span.rates.items():
            self._window(service).rates[source][name] = rate
        for service, came in span.came.items():
            self._windows[service].add(source, came, now)
        speaker.services = set(span.rates)

    def _forget_silent(self, now: float) -> None:
        for source, speakers in self._speakers.items():
            for name in [name for name, one in speakers.items() if now - one.heard_at > SILENT_SECONDS[source]]:
                speaker = speakers[name]
                for service in speaker.services & self._windows.keys():
                    self._windows[service].rates[source].pop(name, None)
                speaker.services = set()

    def _expected(self, service: str, declared: float, planned: float, ahead: float, now: float) -> ExpectedLoad:
        window = self._window(service)
        before = self._said.get(service)
        base, risen_at = planned, -math.inf
        if before is not None:
            risen_at = before.risen_at
            if declared > before.declared:
                window.observed_seconds = 0.0  # its owner knows of what is to come
            # What was held back, or only shown, is not asked anew each cycle; what somebody else planned is the base.
            moved = abs(planned - before.planned) > SAME * planned and abs(planned - before.rate) > SAME * planned
            base = planned if moved and planned > 0 else before.rate
            if base > before.rate:
                risen_at = now
        if window.is_late(now - self.settings.cooldown_seconds):
            risen_at = now  # what was added because promises are missed is not taken back while they are
        silent = max(0.0, now - window.heard_at)
        found = self._forecaster(
            window.known(now),
            declared,
            base,
            ahead,
            self.settings,
            observed_seconds=window.observed_seconds,
            silent_seconds=silent,
            risen_seconds=now - risen_at,
        )
        if found.rate > base > 0:
            risen_at = now
        self._said[service] = _LastForecast(found.rate, planned, declared, risen_at)
        return ExpectedLoad(found.rate, found.low, found.high, window.rate, window.observed_seconds, found.reason)
