"""How one service does just now: what the fast lane goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.control.observe.loads.latencies import add, quantile_ms


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Answers that were heard of at one moment."""

    at: float
    answers: float
    errors: int  # of those that were let in
    within: float  # of the answers, those inside the SLO
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class RecentLoad:
    """The last seconds of a service."""

    rate_per_second: float
    answers: float = 0.0
    errors: int = 0
    within: float | None = None  # of the answers, inside the SLO; None where no SLO is known
    last: Sequence[AnswerCounts] = ()
    silent_seconds: float = 0.0

    @property
    def within_slo(self) -> float | None:
        """The share of requests that were answered inside the SLO: an error is not. None where nobody knows."""
        asked = self.answers + self.errors
        return self.within / asked if self.within is not None and asked > 0 else None

    def latency_ms(self, percentile: float) -> float | None:
        """The latency at a percentile; None where nothing was answered."""
        counts: list[int] = []
        for one in self.last:
            add(counts, one.counts)
        return quantile_ms(counts, percentile)


def summarize_recent(rate: float, last: Sequence[AnswerCounts], has_slo: bool, silent_seconds: float) -> RecentLoad:
    """Summed over what was heard last."""
    within = sum(one.within for one in last) if has_slo else None
    answers, errors = sum(one.answers for one in last), sum(one.errors for one in last)
    return RecentLoad(rate, answers, errors, within, last, silent_seconds)
