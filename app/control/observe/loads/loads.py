"""The load of every service: taken from reports, remembered for half an hour, and forecast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from app.control.domain.ports import Rivals
from app.control.domain.snapshot import ExpectedLoad
from app.control.observe.loads.differences import CountedSpan, GatewayTotals, NodeTotals
from app.control.observe.loads.outlook import Outlook, RateBand
from app.control.observe.loads.recent import RecentLoad, summarize_recent
from app.control.observe.loads.reports import ReportBatch, ReportCursor
from app.control.observe.loads.scarcity import Scarcity
from app.control.observe.loads.window import GATEWAY, NODE, LoadWindow
from app.store.fleet.load_news import GatewayCounters
from app.store.fleet.loads import LoadBucket, LoadHistory
from solvers.forecast import SCARCE, Forecast, ForecastTuning, MarginRules, PlannedRate, Sample, expect
from solvers.forecast.slope import extend_slope
from solvers.llm.iteration import TokenLengths

TUNING = ForecastTuning()
SILENT_SECONDS = {GATEWAY: 10.0, NODE: 60.0}  # how long a sender's last rates are assumed to continue
LONGEST_SECONDS = 60.0  # between two reads; what came in a longer gap is unknown
SAME_SHARE = 1e-4  # of a rate: rates are sums over instances
SHORT_SHARE = 0.05  # of the load that is surely there: less unserved is no reason for others to give way


@dataclass(slots=True)
class _Sender:
    """A node or gateway that reports services."""

    totals: NodeTotals | GatewayTotals
    reported_at: float = 0.0
    services: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _LastForecast:
    """The last forecast of a service, and what it was based on."""

    rate: float
    planned: float
    declared: float
    risen_at: float
    missed_at: float  # the last forecast before which the SLO was missed
    risen_margin: float | None  # of the last rise, if the rate has not fallen since
    sure: float  # the load that was surely there


class Loads:
    """The load of all services. Not safe for several threads."""

    def __init__(self) -> None:
        self.cursor = ReportCursor()
        self.dropped = 0  # impossible counts and unreadable reports
        self._windows: dict[str, LoadWindow] = {}
        self._senders: dict[str, dict[str, _Sender]] = {GATEWAY: {}, NODE: {}}
        self._forecasts: dict[str, _LastForecast] = {}
        self._scarcity = Scarcity()
        self._uncounted: set[str] = set()  # gateways that cannot count; their routes stay where they fall silent
        self._last: float | None = None
        self._full: list[LoadBucket] = []

    def restore(self, courses: Iterable[LoadHistory]) -> None:
        """Starts with the history that an earlier leader stored."""
        for course in courses:
            window = self._window(course.service)
            window.observed_seconds = max(window.observed_seconds, course.observed_seconds)
            if not window.samples:
                window.samples.extend(map(Sample, course.ats, course.seconds, course.requests))
                window.reported_at = max(window.reported_at, course.ats[-1]) if course.ats else 0.0

    def restore_margins(self, expected: Mapping[str, ExpectedLoad]) -> None:
        """Starts with the margins with which an earlier leader last decided."""
        for service, load in expected.items():
            self._window(service).margin.restore(load.scores, load.missed_hours, load.known_hours)

    def set_slos(
        self,
        slos_ms: Mapping[str, float],
        percentiles: Mapping[str, float],
        rules: Mapping[str, MarginRules] = MappingProxyType({}),
    ) -> None:
        """Sets the SLOs that answers are measured against, and what margins are for."""
        for service, slo_ms in slos_ms.items():
            window = self._window(service)
            window.slo_ms = slo_ms
            window.percentile = percentiles[service]
            window.margin_rules = rules.get(service, window.margin_rules)

    def take(self, readings: ReportBatch, now: datetime | None = None) -> None:
        """Adds reports; the rates hold from now until the sender's next report."""
        at = (now or readings.at).timestamp()
        self.cursor = readings.cursor
        self.dropped += readings.unreadable
        for gateway_report in readings.gateways:
            self._note_uncounted(gateway_report)
            sender = self._senders[GATEWAY].setdefault(gateway_report.gateway, _Sender(GatewayTotals()))
            if isinstance(sender.totals, GatewayTotals):
                self._add(
                    GATEWAY,
                    gateway_report.gateway,
                    sender,
                    sender.totals.next(gateway_report.received_at, gateway_report.counts),
                    at,
                )
        for received in readings.reports:
            sender = self._senders[NODE].setdefault(received.report.node, _Sender(NodeTotals()))
            if isinstance(sender.totals, NodeTotals):
                self._add(NODE, received.report.node, sender, sender.totals.next(received.report), at)
        self._forget_silent(at)
        if self._last is not None and at - self._last > 0:
            last = max(self._last, at - LONGEST_SECONDS)
            for window in self._windows.values():
                full = window.passed(last, at)
                if full:
                    self._full.append(full)
                    forecast = self._forecasts.get(window.name)
                    if forecast and forecast.planned > 0:
                        full.planned = forecast.planned * full.seconds
                    rate = forecast.rate if forecast else 0.0
                    note_forecast(full, window.outlook.add(window.samples[-1], rate))
                    window.margin.add(window.samples[-1], rate, window.margin_rules)
        self._last = max(at, self._last or at)

    def expect(
        self,
        declared: Mapping[str, float],
        planned: Mapping[str, float],
        ahead: Mapping[str, float],
        now: datetime,
        lengths: Mapping[str, TokenLengths],
        short: Mapping[str, float] = MappingProxyType({}),
        rivals: Rivals = frozenset,
    ) -> dict[str, ExpectedLoad]:
        """Returns the expected load of each declared service. The last forecast holds until there is news.

        `lengths` are the declared ones of language models. `short` is what the plan serves of services that it leaves
        short, and `rivals` finds who holds the GPUs that these could run on.
        """
        for gone in [name for name, window in self._windows.items() if name not in declared and not window.is_reported]:
            del self._windows[gone]
            self._forecasts.pop(gone, None)
        at = now.timestamp()
        giving = self._scarcity.find_giving(
            [name for name, served in short.items() if self._is_short(name, served)], rivals, at
        )
        found = {}
        for service, rate in declared.items():
            load = self._expect(
                service, rate, planned.get(service, 0.0), ahead.get(service, 60.0), at, gives_way=service in giving
            )
            input_mean, output_mean = self._windows[service].lengths.means(lengths.get(service), at)
            found[service] = replace(load, input_mean=input_mean, output_mean=output_mean)
        return found

    def foresee(self, ahead_seconds: float) -> dict[str, float]:
        """Returns the upper rate of each service so long from now, if its course goes on, as a plan exceeds it."""
        exceeds = 1 + TUNING.rise_share
        known = {name: window.known(self._last or 0.0) for name, window in self._windows.items()}
        return {name: exceeds * extend_slope(samples, ahead_seconds) for name, samples in known.items()}

    def recent(self, service: str) -> RecentLoad | None:
        """Returns the last seconds of a service; None if no sender reports it."""
        window = self._windows.get(service)
        if window is None or not window.rates[window.source]:
            return None
        return summarize_recent(window.rate, tuple(window.answers), window.slo_ms > 0)

    def shed_since(self, moment: datetime) -> set[str]:
        """Returns the services of which requests were rejected since then."""
        return {name for name, window in self._windows.items() if window.shed_at >= moment.timestamp()}

    @property
    def services(self) -> list[str]:
        """All services that were reported or have an SLO."""
        return list(self._windows)

    def full(self) -> list[LoadBucket]:
        """Returns the full buckets since the last call, to be stored."""
        full, self._full = self._full, []
        return full

    def _window(self, service: str) -> LoadWindow:
        window = self._windows.get(service)
        if window is None:
            window = self._windows[service] = LoadWindow(service)
            window.is_partly_counted = bool(self._uncounted)
        return window

    def _note_uncounted(self, report: GatewayCounters) -> None:
        """Notes whether a gateway cannot count: then what the others count is a part of the requests."""
        others = self._uncounted - {report.gateway}
        self._uncounted = others | {report.gateway} if report.counts.uncounted else others
        for window in self._windows.values():
            window.is_partly_counted = bool(self._uncounted)

    def _add(self, source: str, name: str, sender: _Sender, span: CountedSpan | None, now: float) -> None:
        if span is None:
            return
        self.dropped += span.impossible
        sender.reported_at = now
        if span.seconds <= 0:
            return
        for service in sender.services - span.rates.keys():
            self._window(service).rates[source].pop(name, None)
        for service, rate in span.rates.items():
            self._window(service).rates[source][name] = rate
        for service, increase in span.increases.items():
            self._windows[service].add(source, increase, now)
        sender.services = set(span.rates)

    def _forget_silent(self, now: float) -> None:
        for source, senders in self._senders.items():
            for name in [name for name, sender in senders.items() if now - sender.reported_at > SILENT_SECONDS[source]]:
                sender = senders[name]
                for service in sender.services & self._windows.keys():
                    self._windows[service].rates[source].pop(name, None)
                sender.services = set()

    def _is_short(self, service: str, served: float) -> bool:
        """Returns whether requests arrive for which a plan that serves so many has no room."""
        window, last = self._windows.get(service), self._forecasts.get(service)
        return bool(window and window.is_reported and last and served < last.sure * (1 - SHORT_SHARE))

    def _expect(
        self, service: str, declared: float, planned: float, ahead: float, now: float, *, gives_way: bool
    ) -> ExpectedLoad:
        window = self._window(service)
        before = self._forecasts.get(service)
        base, risen_at, missed_at, risen_margin = planned, -math.inf, -math.inf, None
        if before is not None:
            risen_at, missed_at, risen_margin = before.risen_at, before.missed_at, before.risen_margin
            if declared > before.declared:
                window.observed_seconds = 0.0  # its owner knows of load to come
            # A plan that was held back or only shown changes nothing here; a rate planned elsewhere is the new base.
            is_replanned = (
                abs(planned - before.planned) > SAME_SHARE * planned
                and abs(planned - before.rate) > SAME_SHARE * planned
            )
            base = planned if is_replanned and planned > 0 else before.rate
            if base > before.rate:
                risen_at = now
        if window.is_late(now - TUNING.cooldown_seconds):
            missed_at = now  # capacity added for a missed SLO stays while the SLO is missed
        settings = SCARCE if gives_way else TUNING
        silent = max(0.0, now - window.reported_at)
        plan = PlannedRate(
            base, declared, ahead, window.margin.share, observed_seconds=window.observed_seconds, silent_seconds=silent,
            risen_seconds=now - risen_at, missed_seconds=math.inf if gives_way else now - missed_at, settings=settings,
        )  # fmt: skip
        found = expect(window.known(now), plan)
        if not gives_way:
            found = raise_by_outlook(window.outlook, found, base)
        if found.rate > base > 0:
            risen_at = now
        if found.rate != base:
            risen_margin = window.margin.share if found.reason == "risen" and base > 0 else None
        self._forecasts[service] = _LastForecast(
            found.rate, planned, declared, risen_at, missed_at, risen_margin, found.sure
        )
        return ExpectedLoad(
            found.rate, found.low, found.high, window.rate, window.observed_seconds, found.reason,
            window.bursts.variation, window.bursts.burstiness,
            margin=window.margin.share, risk=window.margin_rules.risk,
            scores=window.margin.scores(), bare_per_second=found.bare, sure_per_second=found.sure,
            risen_margin=risen_margin, missed_hours=sum(window.margin.missed), known_hours=len(window.margin.missed),
            gives_way=gives_way,
        )  # fmt: skip


def note_forecast(bucket: LoadBucket, band: RateBand | None) -> None:
    """Writes what was forecast of a bucket, what became of the forecast before, and the hours ahead."""
    if band is None:
        return
    bucket.low, bucket.high = band.lower * bucket.seconds, band.upper * bucket.seconds
    if band.has_held is not None:
        bucket.bands, bucket.bands_held = 1, int(band.has_held)
    bucket.hours_ahead = [rate for hour in band.hours for rate in (hour.lower, hour.middle, hour.upper)]


def raise_by_outlook(outlook: Outlook, found: Forecast, base: float) -> Forecast:
    """Returns the forecast, no lower than the history is trusted to say; a fall to that must be worth its moves."""
    if found.reason not in ("held", "risen", "fallen"):
        return found
    raised = outlook.raised(found.rate)
    if raised <= found.rate:
        return found
    if found.reason == "fallen" and raised * (1 + TUNING.fall_band) > base:
        raised = base
    return replace(found, rate=raised, high=max(found.high, raised), reason="outlook")
