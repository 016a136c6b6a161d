"""From totals to what came between two words of one speaker: a node's minute so far, or a gateway since it began.

A word may be lost: the next one holds its share, too. A counter that fell began anew, or a copy that was counted in it
is gone; then what came is not known, and is taken to have come as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agents.contract import GatewayCounts
from app.control.observe.loads.latencies import add, within, within_at_best
from app.control.observe.loads.reports import ReportExcerpt

MINUTE = timedelta(seconds=60)
LEAST_SECONDS = 5.0  # a shorter time says too little by itself
MOST_RATE = 1e7  # a second, of one speaker: more is a counter that lies


@dataclass(slots=True)
class CounterIncrease:
    """What came to one service between two words."""

    requests: float = 0.0
    errors: int = 0
    counts: list[int] = field(default_factory=list)
    shed: int = 0  # of the errors
    timed: int = 0  # answers that a gateway held against the SLO itself
    late: int = 0  # of those, beyond it

    def slow(self, slo_ms: float) -> float:
        """Answers beyond the SLO; of those that nobody timed, as many as the histogram tells."""
        return self.late + self._untimed(within, slo_ms)

    def surely_slow(self, slo_ms: float) -> float:
        """The same, as far as it is certain: inside a bucket of the histogram anything may be."""
        return self.late + self._untimed(within_at_best, slo_ms)

    def _untimed(self, inside: Callable[[Sequence[float], float], float], slo_ms: float) -> float:
        answers = sum(self.counts)
        if answers <= self.timed or slo_ms <= 0:
            return 0.0
        return (answers - inside(self.counts, slo_ms)) * (answers - self.timed) / answers


@dataclass(frozen=True, slots=True)
class CountedSpan:
    """What one speaker counted in some seconds, by service. `rates` bears short spans: it looks further back."""

    seconds: float = 0.0
    came: Mapping[str, CounterIncrease] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    lies: int = 0  # counts that cannot be


@dataclass(frozen=True, slots=True)
class _Total:
    requests: int
    errors: int
    counts: Sequence[int]
    rate: float = 0.0  # when it last grew
    open: int = 0
    shed: int = 0
    timed: int = 0
    late: int = 0


class NodeTotals:
    """One node's totals by instance."""

    def __init__(self) -> None:
        self._word: ReportExcerpt | None = None
        self._totals: dict[str, _Total] = {}
        self._short: tuple[float, dict[str, float]] = (0.0, {})

    def next(self, word: ReportExcerpt) -> CountedSpan | None:
        """What came with this word; None where it is older than the last."""
        before = self._word
        if before is not None and word.order <= before.order:
            return None
        seconds, same = _seconds(before, word)
        totals: dict[str, _Total] = {}
        came: dict[str, CounterIncrease] = {}
        lies = 0
        for one in word.instances:
            if not one.service:
                continue
            known = self._totals.get(one.id) if before is not None else None
            since = known if known and same else None
            requests: float = one.requests - (since.requests if since else 0)
            errors = one.errors
            counts: Sequence[int] = one.latency_counts
            if since and requests < 0:  # a copy of it is gone
                requests, errors, counts = since.rate * seconds, 0, ()
            elif since:
                errors = max(0, errors - since.errors)
                counts = _grown(counts, since.counts)
            if seconds <= 0:
                requests, errors, counts = 0.0, 0, ()
            if requests > MOST_RATE * max(seconds, 1.0):
                requests, errors, counts, lies = 0.0, 0, (), lies + 1
            rate = requests / seconds if seconds > 0 else known.rate if known else 0.0
            totals[one.id] = _Total(one.requests, one.errors, one.latency_counts, rate)
            service = came.setdefault(one.owner, CounterIncrease())
            service.requests += requests
            service.errors += errors
            add(service.counts, counts)
        self._word, self._totals = word, totals
        rates, self._short = _rates(seconds, came, self._short)
        return CountedSpan(seconds, came, rates, lies)


class GatewayTotals:
    """One gateway's totals by service."""

    def __init__(self) -> None:
        self._said: tuple[datetime, GatewayCounts] | None = None
        self._totals: dict[str, _Total] = {}
        self._short: tuple[float, dict[str, float]] = (0.0, {})

    def next(self, received_at: datetime, said: GatewayCounts) -> CountedSpan | None:
        """What came with this word; None where it is older than the last."""
        before = self._said
        if before is not None and said.sequence <= before[1].sequence:
            return None
        seconds = (received_at - before[0]).total_seconds() if before else 0.0
        goes_on = before is not None and before[1].began == said.began
        totals: dict[str, _Total] = {}
        came: dict[str, CounterIncrease] = {}
        lies = 0
        for one in said.services:
            known = self._totals.get(one.service) if goes_on else None
            totals[one.service] = _Total(
                one.requests,
                one.errors,
                one.latency_counts,
                open=one.open,
                shed=one.shed,
                timed=one.timed,
                late=one.late,
            )
            service = came.setdefault(one.service, CounterIncrease())
            if seconds <= 0 or (goes_on and known is None):
                known = totals[one.service]  # the first word is where counting begins
            ended = one.requests - (known.requests if known else 0)
            # Asked for is what has ended and what is open: those who wait in an overload are not asked for later.
            requests = max(0, ended + one.open - (known.open if known else 0)) if ended >= 0 else ended
            if requests < 0 or requests > MOST_RATE * seconds:
                lies += requests != 0
                continue
            service.requests = requests
            service.errors = max(0, one.errors - (known.errors if known else 0))
            service.shed = min(service.errors, max(0, one.shed - (known.shed if known else 0)))
            service.timed = max(0, one.timed - (known.timed if known else 0))
            service.late = min(service.timed, max(0, one.late - (known.late if known else 0)))
            add(service.counts, _grown(one.latency_counts, known.counts if known else ()))
        self._said, self._totals = (received_at, said), totals
        rates, self._short = _rates(seconds, came, self._short)
        return CountedSpan(seconds, came, rates, lies)


def _seconds(before: ReportExcerpt | None, word: ReportExcerpt) -> tuple[float, bool]:
    """The time that the word speaks of beyond the one before it, and whether it counts on from there.

    By the agent's own clock, whose error cancels. A clock that was set back speaks of no time at all.
    """
    end = min(word.at, word.minute + MINUTE)
    if before is None:
        return (end - word.minute).total_seconds(), False
    if word.minute < before.minute:
        return 0.0, False
    same = word.minute == before.minute and word.incarnation == before.incarnation
    start = before.at if word.minute == before.minute else word.minute
    return max(0.0, (end - min(start, before.minute + MINUTE if same else start)).total_seconds()), same


def _grown(counts: Sequence[int], before: Sequence[int]) -> Sequence[int]:
    if not before:
        return counts
    grown = [max(0, count - earlier) for count, earlier in zip(counts, before, strict=False)]
    grown.extend(counts[len(before) :])
    return grown


def _rates(
    seconds: float, came: Mapping[str, CounterIncrease], short: tuple[float, dict[str, float]]
) -> tuple[dict[str, float], tuple[float, dict[str, float]]]:
    """Rates over at least `LEAST_SECONDS` where there were as many, and what the next short span adds to."""
    requests = {name: one.requests for name, one in came.items()}
    together = seconds
    if seconds < LEAST_SECONDS and short[0] > 0:
        together += short[0]
        requests = {name: count + short[1].get(name, 0.0) for name, count in requests.items()}
    kept = (together, requests) if together < LEAST_SECONDS else (seconds, {n: one.requests for n, one in came.items()})
    return {name: count / together if together > 0 else 0.0 for name, count in requests.items()}, kept
