"""Reads the load of adopted workloads until now, and remembers that of days between two looks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from cli.scaler.reaching import LookFailed
from clusters.deciding import RECENT_SECONDS, KnownLoad, know_load, recent_load
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads, WorkloadSeries
from clusters.metrics.measuring import MOST_AGE_SECONDS as NEWEST_SECONDS
from clusters.savings.shown import find_kept_steps, find_promise
from clusters.scaling.adoption import AdoptedWorkload

HISTORY_SECONDS = 900.0  # between two readings of the days from which shown rates come
MOST_SKEW_SECONDS = 60.0  # between the clocks of Prometheus and of what runs the replicas

Percentiles = Mapping[WorkloadName, float]
MeasureLoads = Callable[[Estate, float, Percentiles], MeasuredLoads]  # of the last so many seconds


class PastLoad(NamedTuple):
    """The load of days of one workload; None where nothing was measured."""

    read_at: float  # seconds of a clock that only goes forward
    percentile: float | None  # of its promise
    series: WorkloadSeries | None
    step_seconds: int


class LoadsNow(NamedTuple):
    """The load of each workload until now, and why that of others could not be read."""

    known: dict[WorkloadName, KnownLoad | str]
    unread: dict[WorkloadName, str]

    def explain_unread(self, name: WorkloadName) -> str:
        """Returns why nothing may be decided by the load of a workload; empty where it was read."""
        return f"its load could not be read: {self.unread[name]}" if name in self.unread else ""


@dataclass(slots=True)
class LoadReader:
    """Reads loads, and remembers those of days between two looks."""

    measure: MeasureLoads
    clock: Callable[[], float]
    days: float
    clock_owner: str = "the API server"  # whose time Prometheus' time is compared with
    _past: dict[WorkloadName, PastLoad] = field(default_factory=dict)

    def read(
        self, estate: Estate, adopted: Sequence[AdoptedWorkload], server_time: datetime | None, began_at: float
    ) -> LoadsNow:
        """Returns the load of each workload until now, with the rates that its replicas have shown in days."""
        promises = {each.name: each.promise.latency for each in adopted if each.promise and each.promise.latency}
        percentiles = {name: promise.percentile for name, promise in promises.items()}
        watched = _choose(estate, {each.name for each in adopted})
        if not watched.workloads:
            return LoadsNow({}, {})
        unread = self._read_past(watched, percentiles)
        asked_at = self.clock()
        recent = self.measure(watched, RECENT_SECONDS, percentiles)
        if server_time:
            _check_clock(recent, server_time.timestamp() + asked_at - began_at, self.clock_owner)
        unread |= recent.unread
        known: dict[WorkloadName, KnownLoad | str] = {}
        for name in {each.name for each in adopted} - unread.keys():
            past = self._past.get(name)
            series, present = past.series if past else None, recent.workloads.get(name)
            if past is None or series is None or present is None:
                known[name] = "no load was measured"
                continue
            if name not in recent.current:
                known[name] = f"its counters have no sample of the last {NEWEST_SECONDS // 60} minutes"
                continue
            promise = promises.get(name) or find_promise(series)
            load = know_load(series, promise, past.step_seconds)
            if isinstance(load, KnownLoad) and promise:
                steps, kept = len(present.rates_per_second), find_kept_steps(present, promise)
                load = recent_load(present, steps, recent.step_seconds, load.shown, load.most_ready, kept[-1])
            known[name] = load
        return LoadsNow(known, unread)

    def _read_past(self, watched: Estate, percentiles: Percentiles) -> dict[WorkloadName, str]:
        """Reads the days of workloads whose days are old or new to us; returns why some could not be read."""
        now, names = self.clock(), {each.name for each in watched.workloads}
        self._past = {
            name: past
            for name, past in self._past.items()
            if name in names and now < past.read_at + HISTORY_SECONDS and past.percentile == percentiles.get(name)
        }
        missing = _choose(watched, names - self._past.keys())
        if not missing.workloads:
            return {}
        loads = self.measure(missing, self.days * 86_400, percentiles)
        for each in missing.workloads:
            if each.name not in loads.unread:
                series = loads.workloads.get(each.name)
                self._past[each.name] = PastLoad(now, percentiles.get(each.name), series, loads.step_seconds)
        return dict(loads.unread)


def _choose(estate: Estate, names: Collection[WorkloadName]) -> Estate:
    return replace(estate, workloads=tuple(each for each in estate.workloads if each.name in names))


def _check_clock(recent: MeasuredLoads, expected: float, owner: str) -> None:
    """Checks that what Prometheus takes for now is now; LookFailed if not, since the load is of another time then."""
    ahead = recent.start + recent.steps * recent.step_seconds - expected
    if abs(ahead) > MOST_SKEW_SECONDS:
        where = "ahead of" if ahead > 0 else "behind"
        raise LookFailed("prometheus", f"its clock is {abs(ahead):.0f} seconds {where} {owner}'s")
