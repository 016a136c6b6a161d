"""Judges replicas by plain arithmetic: which requests came while enough of them served, by what the data shows.

It knows nothing of how anybody decides. What stood in the cluster is judged by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusters.measured import MeasuredSeries


@dataclass(frozen=True, slots=True)
class JudgedRequests:
    """Requests of some time, and how many of them came while replicas were enough."""

    requests: float = 0.0
    served: float = 0.0

    def __add__(self, other: JudgedRequests) -> JudgedRequests:
        return JudgedRequests(self.requests + other.requests, self.served + other.served)

    @property
    def attainment(self) -> float | None:
        """Returns the share of requests that came while replicas were enough; None where none came."""
        return self.served / self.requests if self.requests else None


def judge_steps(
    rates: MeasuredSeries, needed: Sequence[int | None], serving: Sequence[float | None], step_seconds: int
) -> list[JudgedRequests]:
    """Returns the judgement of each step. A step whose load, need or replicas are not known counts for nothing."""
    found = []
    for rate, least, count in zip(rates, needed, serving, strict=True):
        if rate is None or least is None or count is None:
            found.append(JudgedRequests())
        else:
            requests = rate * step_seconds
            found.append(JudgedRequests(requests, requests if count >= least else 0.0))
    return found
