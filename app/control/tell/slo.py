"""Computes how services keep their SLOs, and how fast they burn their allowance of late requests.

An SLO of 98 % allows two of a hundred requests to be late. A burn rate of 1 spends just that; at 14.4 the allowance of
a month is gone in two days. An alarm needs a long window, which makes sure, and a short one, which ends it soon after
the trouble.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from app.store.database.database import Database
from app.store.fleet import loads
from app.store.fleet.loads import WindowSums
from solvers.planning.problem import Problem

Alarm = Literal["", "slow", "fast"]

FAST_BURN = ("1h", "5m", 14.4)
SLOW_BURN = ("6h", "30m", 6.0)
BUDGET = "30d"
FEWEST_REQUESTS = 20.0  # in the short window; among fewer, a single late one would raise the alarm

READ_AGAIN_AFTER = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Requests counted in a window."""

    answers: float = 0.0
    errors: float = 0.0
    slow: float = 0.0

    @property
    def requests(self) -> float:
        return self.answers + self.errors

    @property
    def attainment(self) -> float | None:
        """Returns the share answered in time, errors excluded; None without requests."""
        return max(0.0, self.answers - self.slow) / self.requests if self.requests > 0 else None

    def burn_rate(self, percentile: float) -> float | None:
        """Returns how many times as fast as allowed requests are late."""
        attained = self.attainment
        return None if attained is None else (1 - attained) / (1 - percentile / 100)


@dataclass(frozen=True, slots=True)
class SloStatus:
    """Attainment and burn rates of a service's SLO, by window."""

    attainment: Mapping[str, float] = field(default_factory=dict)
    burn_rates: Mapping[str, float] = field(default_factory=dict)
    budget_left: float = 1.0  # share of the late requests allowed in 30 days of this load; below 0: overspent
    alarm: Alarm = ""


def assess_slo(windows: Mapping[str, WindowCounts], percentile: float) -> SloStatus:
    """Computes the status of an SLO at this percentile from counts by window."""
    attainment = {name: counts.attainment for name, counts in windows.items()}
    burning = {name: counts.burn_rate(percentile) for name, counts in windows.items()}
    rates = {name: rate for name, rate in burning.items() if rate is not None}
    return SloStatus(
        {name: share for name, share in attainment.items() if share is not None},
        rates,
        1 - rates.get(BUDGET, 0.0),
        _alarm(windows, rates, percentile),
    )


def assess_all(counted: WindowSums, percentiles: Mapping[str, float]) -> dict[str, SloStatus]:
    """Computes the status of every service; without requests it is empty."""
    return {
        service: assess_slo({name: WindowCounts(*sums) for name, sums in counted.get(service, {}).items()}, percentile)
        for service, percentile in percentiles.items()
    }


@dataclass(slots=True)
class SloReader:
    """Reads the status of all services once a minute: it is summed over hours."""

    _at: datetime | None = None
    _known: Mapping[str, SloStatus] = field(default_factory=dict)

    def read(self, database: Database, now: datetime, problem: Problem) -> Mapping[str, SloStatus]:
        if self._at is None or now >= self._at + READ_AGAIN_AFTER:
            percentiles = {name: service.percentile for name, service in problem.services.items()}
            self._known, self._at = assess_all(database.read(loads.count_in_windows), percentiles), now
        return self._known


def _alarm(windows: Mapping[str, WindowCounts], rates: Mapping[str, float], percentile: float) -> Alarm:
    # A low percentile can never burn fast: half of the highest possible rate is fast enough.
    most = 0.5 / (1 - percentile / 100)
    alarms: tuple[tuple[Alarm, tuple[str, str, float]], ...] = (("fast", FAST_BURN), ("slow", SLOW_BURN))
    for alarm, (long, short, rate) in alarms:
        burns = min(rates.get(long, 0.0), rates.get(short, 0.0))
        if burns > min(rate, most) and windows[short].requests >= FEWEST_REQUESTS:
            return alarm
    return ""
