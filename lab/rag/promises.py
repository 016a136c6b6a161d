"""Counts what the requests of language models got, promise by promise, and what the GPUs that served them cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulation.fleet.fleet import SimulatedFleet
from simulation.measure.held import held_per_hour
from simulation.serving.tokens import LATE, PACE_LATE
from simulation.serving.totals import Total


@dataclass(frozen=True, slots=True)
class PromiseShares:
    """The shares of a service's requests that kept each promise, and its cost. Without an answer none is kept."""

    requests: int
    ttft: float
    tpot: float
    both: float
    cost_per_hour: float

    def figures(self) -> dict[str, float]:
        return {
            "requests": self.requests,
            "ttft": round(self.ttft, 6),
            "tpot": round(self.tpot, 6),
            "both": round(self.both, 6),
            "costPerHour": round(self.cost_per_hour, 4),
        }


class PromiseRecord:
    """Records from the first look on what requests got and what GPUs cost. It looks at the fleet after every tick."""

    def __init__(self) -> None:
        self._first: Mapping[str, Total] = {}
        self._began = self._at = 0.0
        self._spent: dict[str, float] = {}  # the price of an hour times the seconds held

    def look(self, fleet: SimulatedFleet) -> None:
        """Counts the time since the last look at the price of what is held now."""
        now = fleet.clock.seconds
        if not self._first:
            self._first = {name: total.copied() for name, total in fleet.services.items()}
            self._began = self._at = now
            self._spent = dict.fromkeys(self._first, 0.0)
        for name in self._spent if now > self._at else ():
            self._spent[name] += (now - self._at) * held_per_hour(fleet, (name,))
        self._at = now

    def shares(self, fleet: SimulatedFleet) -> dict[str, PromiseShares]:
        """Returns what each service's requests got between the first look and the last."""
        seconds = max(1e-9, self._at - self._began)
        return {
            name: _shares(self._first[name], total, self._spent[name] / seconds)
            for name, total in fleet.services.items()
        }


def _shares(before: Total, after: Total, cost_per_hour: float) -> PromiseShares:
    answered, failed = after.answered - before.answered, after.errors - before.errors
    tokens = after.tokens - before.tokens
    requests = answered + failed
    if not requests:
        return PromiseShares(0, 1.0, 1.0, 1.0, cost_per_hour)
    return PromiseShares(
        requests, (answered - int(tokens[LATE])) / requests, (answered - int(tokens[PACE_LATE])) / requests,
        (after.within - before.within) / requests, cost_per_hour,
    )  # fmt: skip
