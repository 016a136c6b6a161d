"""Reads the cluster and its load as they are now, and decides how many replicas each adopted workload should have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NamedTuple

from app.store.plans.scale_rows import ScaleDraft, ScaleTarget
from clusters.decided_bounds import draw_annotated_bounds, leave_to_decisions
from clusters.deciding import RECENT_SECONDS, KnownLoad, StandingReplicas, decide_replicas, know_load, recent_load
from clusters.estate import ClusterWorkload, Estate, WorkloadName
from clusters.measured import MeasuredLoads, WorkloadSeries
from clusters.metrics.measuring import MOST_AGE_SECONDS as NEWEST_SECONDS
from clusters.objects import ClusterObjects, name_of, namespace_of
from clusters.promises import find_promises
from clusters.reading import read_estate
from clusters.reading.workloads import SCALED
from clusters.savings.shown import find_kept_steps, find_promise
from clusters.scaling.adoption import AdoptedWorkload, find_adopted
from clusters.scaling.sightings import Sighting, note_sightings, read_uid

HISTORY_SECONDS = 900.0  # between two readings of the days from which shown rates come
MOST_SKEW_SECONDS = 60.0  # between the clocks of Prometheus and of the API server
MOST_AGE_SECONDS = 120.0  # of a look by which something is written
NEEDED = (*SCALED, "Pod", "Node")

Percentiles = Mapping[WorkloadName, float]
MeasureLoads = Callable[[Estate, float, Percentiles], MeasuredLoads]  # of the last so many seconds


class LookFailed(Exception):
    """The cluster or its load cannot be read now, so that nothing is decided; the message says why."""

    def __init__(self, what: Literal["cluster", "prometheus"], reason: str) -> None:
        super().__init__(reason)
        self.what = what


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """What was decided at one moment, and of which workloads as they were then."""

    drafts: tuple[ScaleDraft, ...]
    adopted: Mapping[ScaleTarget, AdoptedWorkload]
    began_at: float  # seconds of a clock that only goes forward

    def is_recent(self, now: float) -> bool:
        """Returns whether the cluster may still be as it was: what is written by an old look may be wrong by now."""
        return now < self.began_at + MOST_AGE_SECONDS


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


@dataclass(slots=True)
class ClusterWatch:
    """What a scaler remembers between two looks: since when workloads are as they are, and the load of days."""

    read_objects: Callable[[], ClusterObjects]
    measure: MeasureLoads
    clock: Callable[[], float]
    days: float
    namespaces: Collection[str] = ()  # whose workloads may be adopted; none: all
    _seen: Mapping[str, Sighting] = field(default_factory=dict)
    _past: dict[WorkloadName, PastLoad] = field(default_factory=dict)

    def look(self) -> ClusterLook:
        """Decides by what the cluster and its metrics say now; LookFailed where one of them does not answer."""
        began_at = self.clock()
        objects = self.read_objects()
        unread = [kind for kind in NEEDED if kind not in objects.lists]
        if unread:
            raise LookFailed("cluster", "; ".join(map(str, objects.unread)))
        estate = read_estate(objects)
        self._seen = note_sightings(objects, self._seen)
        found = [
            each
            for each in find_adopted(objects, estate, find_promises(estate), self._seen)
            if not self.namespaces or each.name.namespace in self.namespaces
        ]
        loads = self._read_loads(estate, found, objects.server_time, began_at)
        ages = self._find_ages(objects)
        workloads = {each.name: each for each in estate.workloads}
        drafts = tuple(_draft(each, workloads.get(each.name), estate, loads, ages) for each in found)
        return ClusterLook(drafts, {ScaleTarget(*each.name): each for each in found}, began_at)

    def _read_loads(
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
            _check_clock(recent, server_time.timestamp() + asked_at - began_at)
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

    def _find_ages(self, objects: ClusterObjects) -> dict[WorkloadName, float]:
        """Returns for how many seconds each workload is known to be as it is."""
        now = objects.server_time
        return {
            WorkloadName(namespace, kind, name): (now - self._seen[uid].since).total_seconds()
            for kind in SCALED
            for item in objects.of(kind)
            if now and (uid := read_uid(item)) in self._seen
            for namespace, name in [(namespace_of(item), name_of(item))]
        }


def _choose(estate: Estate, names: Collection[WorkloadName]) -> Estate:
    return replace(estate, workloads=tuple(each for each in estate.workloads if each.name in names))


def _check_clock(recent: MeasuredLoads, expected: float) -> None:
    """Checks that what Prometheus takes for now is now; LookFailed if not, since the load is of another time then."""
    ahead = recent.start + recent.steps * recent.step_seconds - expected
    if abs(ahead) > MOST_SKEW_SECONDS:
        where = "ahead of" if ahead > 0 else "behind"
        raise LookFailed("prometheus", f"its clock is {abs(ahead):.0f} seconds {where} the API server's")


def _draft(
    adopted: AdoptedWorkload, workload: ClusterWorkload | None, estate: Estate,
    loads: LoadsNow, ages: Mapping[WorkloadName, float],
) -> ScaleDraft:  # fmt: skip
    """Returns how many replicas a workload should have, as a row of a plan."""
    unread = loads.unread.get(adopted.name, "")
    blind = f"its load could not be read: {unread}" if unread else ""
    target, wanted, why = ScaleTarget(*adopted.name), None, "nothing is known of what it serves"
    if isinstance(annotated := adopted.known_bounds, str):
        why = annotated
    elif workload is not None:
        bounds = draw_annotated_bounds(leave_to_decisions(workload), estate, annotated)
        standing = StandingReplicas(adopted.replicas, workload.ready, ages.get(adopted.name, 0.0))
        decision = decide_replicas(blind or loads.known.get(adopted.name, "no load was measured"), bounds, standing)
        why = decision.reason
        if decision.expected_per_second is not None:  # else nothing is known that could change the number
            wanted = adopted.bound(decision.replicas).replicas
        if wanted not in (None, decision.replicas):
            why += f"; {wanted} by the annotations' bounds and one step at a time"
    return ScaleDraft(
        target,
        adopted.service,
        adopted.mode,
        adopted.replicas,
        wanted,
        why,
        adopted.hold or blind,
        adopted.generation,
        adopted.uid,
        is_blind=bool(blind),
    )
