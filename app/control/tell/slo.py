"""Whether promises are kept, and how fast what may be missed is being spent.

An SLO of 98 % allows two of a hundred requests to be late. Burning at 1 spends just that; a month's allowance that
burns at 14.4 is gone in two days. A window that is long makes sure, a short one beside it ends the alarm soon after
the trouble.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection

from app.store.fleet import loads

Alarm = Literal["", "slow", "fast"]

FAST_BURN = ("1h", "5m", 14.4)
SLOW_BURN = ("6h", "30m", 6.0)
BUDGET = "30d"
FEWEST = 20.0  # answers in the short window; of fewer, one alone would alarm


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """What was counted in a window."""

    answers: float = 0.0
    errors: float = 0.0
    slow: float = 0.0

    @property
    def asked(self) -> float:
        return self.answers + self.errors

    @property
    def attainment(self) -> float | None:
        """The share that was answered in time: an error is not. None where nothing was asked."""
        return max(0.0, self.answers - self.slow) / self.asked if self.asked > 0 else None

    def burn_rate(self, percentile: float) -> float | None:
        """How many times as fast as allowed misses come."""
        attained = self.attainment
        return None if attained is None else (1 - attained) / (1 - percentile / 100)


@dataclass(frozen=True, slots=True)
class SloStatus:
    """How a service's promise is kept, by window."""

    attainment: Mapping[str, float] = field(default_factory=dict)
    burn_rates: Mapping[str, float] = field(default_factory=dict)
    budget_left: float = 1.0  # of what may be missed in 30 days of such load; below 0 it is overspent
    alarm: Alarm = ""


def assess_slo(windows: Mapping[str, WindowCounts], percentile: float) -> SloStatus:
    """What windows say of a promise at this percentile."""
    attainment = {name: told.attainment for name, told in windows.items()}
    burning = {name: told.burn_rate(percentile) for name, told in windows.items()}
    rates = {name: rate for name, rate in burning.items() if rate is not None}
    return SloStatus(
        {name: share for name, share in attainment.items() if share is not None},
        rates,
        1 - rates.get(BUDGET, 0.0),
        _alarm(windows, rates, percentile),
    )


def assess_all(connection: Connection, percentiles: Mapping[str, float]) -> dict[str, SloStatus]:
    """How every promise is kept; of a service that was never asked, nothing is known."""
    told = loads.in_windows(connection)
    return {
        service: assess_slo({name: WindowCounts(*sums) for name, sums in told.get(service, {}).items()}, percentile)
        for service, percentile in percentiles.items()
    }


def _alarm(windows: Mapping[str, WindowCounts], rates: Mapping[str, float], percentile: float) -> Alarm:
    # Where much may be missed nothing burns fast: missing half of what can be missed is fast enough.
    most = 0.5 / (1 - percentile / 100)
    alarms: tuple[tuple[Alarm, tuple[str, str, float]], ...] = (("fast", FAST_BURN), ("slow", SLOW_BURN))
    for alarm, (long, short, rate) in alarms:
        burns = min(rates.get(long, 0.0), rates.get(short, 0.0))
        if burns > min(rate, most) and windows[short].asked >= FEWEST:
            return alarm
    return ""
