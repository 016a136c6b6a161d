"""Turns totals into the requests between two reports: totals of a node's minute so far, or since a gateway began.

A report may be lost: the next one includes its share. A counter that decreased was reset, or a copy that it included is
gone; the requests in between are then unknown, and the previous rate is assumed to have continued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.contract.gateways import GatewayCounts, LengthTotals, TokenTotals, WindowTotals
from app.control.domain.latencies import add, count_within, count_within_at_best
from app.control.observe.loads.reports import ReportExcerpt

MINUTE = timedelta(seconds=60)
NO_TOKENS = TokenTotals()
LEAST_SECONDS = 5.0  # a shorter span alone gives no reliable rate
MOST_PER_SECOND = 1e7  # requests from a sender: a higher count is wrong


@dataclass(slots=True)
class CounterIncrease:
    """The requests of a service between two reports."""

    requests: float = 0.0
    errors: int = 0
    counts: list[int] = field(default_factory=list)
    shed: int = 0  # of the errors
    timed: int = 0  # answers that the gateway itself compared with the SLO
    late: int = 0  # of those, slower than the SLO
    windows: Sequence[WindowTotals] = ()  # blocks of windows that were counted
    tokens: TokenTotals = NO_TOKENS
    lengths: LengthTotals | None = None  # of answers whose tokens were counted

    def slow(self, slo_ms: float) -> float:
        """Returns the answers slower than the SLO; for untimed answers, as the histogram estimates.

        Of a language model those with a late first token or those with a slow pace, whichever are more.
        """
        return max(self.late + self._count_untimed(count_within, slo_ms), self.tokens.pace_late)

    def surely_slow(self, slo_ms: float) -> float:
        """Returns the answers that are certainly slower than the SLO: within a bucket nothing is certain."""
        return max(self.late + self._count_untimed(count_within_at_best, slo_ms), self.tokens.pace_late)

    def _count_untimed(self, inside: Callable[[Sequence[float], float], float], slo_ms: float) -> float:
        answers = sum(self.counts)
        if answers <= self.timed or slo_ms <= 0:
            return 0.0
        return (answers - inside(self.counts, slo_ms)) * (answers - self.timed) / answers


@dataclass(frozen=True, slots=True)
class CountedSpan:
    """The counts of a sender over some seconds, by service. `rates` looks further back if the span is short."""

    seconds: float = 0.0
    increases: Mapping[str, CounterIncrease] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    impossible: int = 0  # counts that cannot be true


@dataclass(frozen=True, slots=True)
class _Total:
    """The totals that a sender reported last."""

    requests: int
    errors: int
    counts: Sequence[int]
    rate: float = 0.0  # when it last grew
    open: int = 0
    shed: int = 0
    timed: int = 0
    late: int = 0
    windows: Sequence[WindowTotals] = ()
    tokens: TokenTotals = NO_TOKENS
    lengths: LengthTotals | None = None


class NodeTotals:
    """A node's totals by instance."""

    def __init__(self) -> None:
        self._report: ReportExcerpt | None = None
        self._totals: dict[str, _Total] = {}
        self._short: tuple[float, dict[str, float]] = (0.0, {})

    def next(self, report: ReportExcerpt) -> CountedSpan | None:
        """Returns the counts that this report adds; None if it is older than the last."""
        before = self._report
        if before is not None and report.order <= before.order:
            return None
        seconds, same = _seconds(before, report)
        totals: dict[str, _Total] = {}
        increases: dict[str, CounterIncrease] = {}
        impossible = 0
        for instance in report.instances:
            if not instance.service:
                continue
            known = self._totals.get(instance.id) if before is not None else None
            since = known if known and same else None
            requests: float = instance.requests - (since.requests if since else 0)
            errors = instance.errors
            counts: Sequence[int] = instance.latency_counts
            tokens = TokenTotals(instance.tokens_in, instance.tokens_out, instance.paced, instance.pace_late)
            fresh = tokens_since(tokens, since.tokens if since else NO_TOKENS)
            if since and requests < 0:  # one of its copies is gone
                requests, errors, counts = since.rate * seconds, 0, ()
            elif since:
                errors = max(0, errors - since.errors)
                counts = _grown(counts, since.counts)
            if seconds <= 0:
                requests, errors, counts, fresh = 0.0, 0, (), NO_TOKENS
            if requests > MOST_PER_SECOND * max(seconds, 1.0):
                requests, errors, counts, impossible = 0.0, 0, (), impossible + 1
            rate = requests / seconds if seconds > 0 else known.rate if known else 0.0
            totals[instance.id] = _Total(
                instance.requests, instance.errors, instance.latency_counts, rate, tokens=tokens
            )
            increase = increases.setdefault(instance.owner, CounterIncrease())
            increase.requests += requests
            increase.errors += errors
            increase.tokens = add_tokens(increase.tokens, fresh)
            add(increase.counts, counts)
        self._report, self._totals = report, totals
        rates, self._short = _rates(seconds, increases, self._short)
        return CountedSpan(seconds, increases, rates, impossible)


class GatewayTotals:
    """A gateway's totals by service."""

    def __init__(self) -> None:
        self._last: tuple[datetime, GatewayCounts] | None = None
        self._totals: dict[str, _Total] = {}
        self._short: tuple[float, dict[str, float]] = (0.0, {})

    def next(self, received_at: datetime, counts: GatewayCounts) -> CountedSpan | None:
        """Returns the counts that this report adds; None if it is older than the last."""
        before = self._last
        if before is not None and counts.sequence <= before[1].sequence:
            return None
        seconds = (received_at - before[0]).total_seconds() if before else 0.0
        goes_on = before is not None and before[1].began == counts.began
        totals: dict[str, _Total] = {}
        increases: dict[str, CounterIncrease] = {}
        impossible = 0
        for service_counts in counts.services:
            known = self._totals.get(service_counts.service) if goes_on else None
            totals[service_counts.service] = _Total(
                service_counts.requests,
                service_counts.errors,
                service_counts.latency_counts,
                open=service_counts.open,
                shed=service_counts.shed,
                timed=service_counts.timed,
                late=service_counts.late,
                windows=service_counts.windows if seconds > 0 else (),
                tokens=service_counts.tokens or NO_TOKENS,
                lengths=service_counts.lengths if seconds > 0 else None,
            )
            increase = increases.setdefault(service_counts.service, CounterIncrease())
            # All that a gateway has counted is evidence, for a new leader, too.
            increase.windows = _subtract_windows(service_counts.windows, known.windows if known else ())
            increase.lengths = _subtract_lengths(service_counts.lengths, known.lengths if known else None)
            if seconds <= 0 or (goes_on and known is None):
                known = totals[service_counts.service]  # counting begins with the first report
            ended = service_counts.requests - (known.requests if known else 0)
            # Requests count when they arrive: those ended plus those open, so that an overload does not delay them.
            requests = max(0, ended + service_counts.open - (known.open if known else 0)) if ended >= 0 else ended
            if requests < 0 or requests > MOST_PER_SECOND * seconds:
                impossible += requests != 0
                continue
            increase.requests = requests
            increase.errors = max(0, service_counts.errors - (known.errors if known else 0))
            increase.shed = min(increase.errors, max(0, service_counts.shed - (known.shed if known else 0)))
            increase.timed = max(0, service_counts.timed - (known.timed if known else 0))
            increase.late = min(increase.timed, max(0, service_counts.late - (known.late if known else 0)))
            increase.tokens = tokens_since(service_counts.tokens or NO_TOKENS, known.tokens if known else NO_TOKENS)
            add(increase.counts, _grown(service_counts.latency_counts, known.counts if known else ()))
        self._last, self._totals = (received_at, counts), totals
        rates, self._short = _rates(seconds, increases, self._short)
        return CountedSpan(seconds, increases, rates, impossible)


def _seconds(before: ReportExcerpt | None, report: ReportExcerpt) -> tuple[float, bool]:
    """Returns the seconds that the report adds to the previous one, and whether it continues the same totals.

    It uses the agent's own clock, whose error cancels out. A clock that was set back adds no time.
    """
    end = min(report.at, report.minute + MINUTE)
    if before is None:
        return (end - report.minute).total_seconds(), False
    if report.minute < before.minute:
        return 0.0, False
    same = report.minute == before.minute and report.incarnation == before.incarnation
    start = before.at if report.minute == before.minute else report.minute
    return max(0.0, (end - min(start, before.minute + MINUTE if same else start)).total_seconds()), same


def _grown(counts: Sequence[int], before: Sequence[int]) -> Sequence[int]:
    if not before:
        return counts
    grown = [max(0, count - earlier) for count, earlier in zip(counts, before, strict=False)]
    grown.extend(counts[len(before) :])
    return grown


def add_tokens(first: TokenTotals, second: TokenTotals) -> TokenTotals:
    """Returns the sums of both."""
    return TokenTotals(
        first.tokens_in + second.tokens_in,
        first.tokens_out + second.tokens_out,
        first.paced + second.paced,
        first.pace_late + second.pace_late,
    )


def tokens_since(now: TokenTotals, before: TokenTotals) -> TokenTotals:
    """Returns what was counted after `before`."""
    return TokenTotals(
        max(0, now.tokens_in - before.tokens_in),
        max(0, now.tokens_out - before.tokens_out),
        max(0, now.paced - before.paced),
        max(0, now.pace_late - before.pace_late),
    )


def _subtract_windows(windows: Sequence[WindowTotals], before: Sequence[WindowTotals]) -> Sequence[WindowTotals]:
    """Returns the blocks counted since; all of them where counting began again."""
    if not windows or windows == before:
        return ()
    known = {counted.slos: counted for counted in before}
    added = []
    for counted in windows:
        earlier = known.get(counted.slos)
        if earlier is None or counted.blocks < earlier.blocks:
            added.append(counted)
        elif counted.blocks > earlier.blocks:
            sums = ((getattr(counted, name), getattr(earlier, name)) for name in ("spread", "means", "squares"))
            grown = (max(0.0, now - then) for now, then in sums)
            added.append(WindowTotals(counted.slos, counted.blocks - earlier.blocks, *grown))
    return added


def _subtract_lengths(lengths: LengthTotals | None, before: LengthTotals | None) -> LengthTotals | None:
    """Returns the answers counted since; all of them where counting began again."""
    if lengths is None or lengths == before:
        return None
    if before is None or lengths.answers < before.answers:
        return lengths
    return LengthTotals(
        lengths.answers - before.answers,
        max(0, lengths.tokens_in - before.tokens_in),
        max(0, lengths.tokens_out - before.tokens_out),
    )


def _rates(
    seconds: float, increases: Mapping[str, CounterIncrease], short: tuple[float, dict[str, float]]
) -> tuple[dict[str, float], tuple[float, dict[str, float]]]:
    """Returns rates over at least `LEAST_SECONDS` if possible, and the counts that the next short span adds to."""
    requests = {name: counted.requests for name, counted in increases.items()}
    together = seconds
    if seconds < LEAST_SECONDS and short[0] > 0:
        together += short[0]
        requests = {name: count + short[1].get(name, 0.0) for name, count in requests.items()}
    rates = {name: count / together if together > 0 else 0.0 for name, count in requests.items()}
    if together < LEAST_SECONDS:
        return rates, (together, requests)
    return rates, (seconds, {name: counted.requests for name, counted in increases.items()})
