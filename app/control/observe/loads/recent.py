"""The recent load of a service, which the fast lane acts on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """The answers that a report counted."""

    at: float
    answers: float
    errors: int  # of admitted requests
    within: float  # of the answers, those within the SLO
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class RecentLoad:
    """The last seconds of a service."""

    rate_per_second: float
    answers: float = 0.0
    errors: int = 0
    within: float | None = None  # of the answers, within the SLO; None if no SLO is known

    @property
    def within_slo(self) -> float | None:
        """The share of requests answered within the SLO; an error counts as missed. None if unknown."""
        requests = self.answers + self.errors
        return self.within / requests if self.within is not None and requests > 0 else None


def summarize_recent(rate: float, last: Sequence[AnswerCounts], has_slo: bool) -> RecentLoad:
    """Sums up the last answers of a service."""
    within = sum(counted.within for counted in last) if has_slo else None
    answers, errors = sum(counted.answers for counted in last), sum(counted.errors for counted in last)
    return RecentLoad(rate, answers, errors, within)
