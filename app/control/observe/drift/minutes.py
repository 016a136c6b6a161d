"""What a node's minute says of its instances, where the minute went as planned.

A minute does not count for an instance that is cold, handed over or not as it was planned, nor while its GPU is slowed
down by heat or power, has anything on it that comes or goes, or is off its planned clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt
from typing import TypeAlias

from agents.contract.reports import InstanceMinute
from app.control.observe.drift.predict import Prediction
from app.control.observe.drift.tuning import DriftTuning
from app.control.observe.loads.latencies import within_at_best
from app.control.observe.loads.reports import ReportExcerpt

WHOLE_SECONDS = 50.0  # of a minute must have been told
WARM = timedelta(seconds=60)  # after it became ready
SAME_PERCENT = 0.51
BURST_SLOS = 5.0  # misses come together: a minute has seen one chance of a burst in so many times the SLO
SURE = 2.5  # deviations

ShedSince: TypeAlias = Callable[[datetime], Collection[str]]  # services of which gateways turned requests away


def no_shedding(moment: datetime) -> Collection[str]:
    """Where no gateway says so."""
    return ()


@dataclass(frozen=True, slots=True)
class Observation:
    """One instance in one minute that counts. Ratios are observed over predicted by the profile alone."""

    key: str
    profile: int
    shape: str
    instance: str
    at: datetime
    exec_ratio: float | None = None  # None: its server does not tell
    fill: float = 0.0  # how full batches were
    alone: bool = False
    late: bool | None = None  # more misses than promised, under no more load than planned; None: too few answers
    memory_ratio: float | None = None
    power_ratio: float | None = None


class NodeMinutes:
    """One node's minutes, as its words tell them."""

    def __init__(self) -> None:
        self._first: ReportExcerpt | None = None
        self._last: ReportExcerpt | None = None
        self._disturbed: set[int] = set()  # GPUs, in the minute so far
        self._moved: set[str] = set()  # instances, likewise
        self._ready_since: dict[str, datetime] = {}

    def next(
        self,
        word: ReportExcerpt,
        predicted: Mapping[str, Prediction],
        settings: DriftTuning,
        shed_since: ShedSince = no_shedding,
    ) -> Iterator[Observation]:
        """What the minute before showed, once this word is of the next one."""
        last = self._last
        if last is not None and word.order <= last.order:
            return
        if last is not None and word.minute != last.minute:
            yield from self._finished(predicted, settings, shed_since)
            self._first, self._disturbed, self._moved = None, set(), set()
        if self._first is None:
            self._first = word
        self._look(word, last)
        self._last = word

    def _look(self, word: ReportExcerpt, last: ReportExcerpt | None) -> None:
        """What of this word spoils the minute."""
        copies = {copy.id: copy for copy in word.copies}
        for copy in word.copies:
            if copy.stage != "ready":
                self._disturbed.add(copy.gpu)
        if last is not None:
            for copy in last.copies:
                if copy.id not in copies:
                    self._disturbed.add(copy.gpu)
            known = {copy.id for copy in last.copies}
            self._disturbed |= {copy.gpu for copy in word.copies if copy.id not in known}
        for gpu in word.gpus:
            if gpu.throttle_reasons or gpu.health != "ok":
                self._disturbed.add(gpu.index)
        for excursion in word.excursions:
            if excursion.instance:
                self._moved.add(excursion.instance)
            else:
                self._disturbed.add(excursion.gpu)
        ready = {copy.instance for copy in word.copies if copy.stage == "ready"}
        for instance in self._ready_since.keys() - ready:
            del self._ready_since[instance]
        for instance in ready - self._ready_since.keys():
            self._ready_since[instance] = word.at

    def _finished(
        self, predicted: Mapping[str, Prediction], settings: DriftTuning, shed_since: ShedSince
    ) -> Iterator[Observation]:
        first, last = self._first, self._last
        if first is None or last is None or first.generation != last.generation:
            return
        told = min((last.at - last.minute).total_seconds(), 60.0)
        if told < WHOLE_SECONDS or (first.at - first.minute).total_seconds() > 60.0 - WHOLE_SECONDS + 5.0:
            return
        power = _power_ratios(last, predicted, self._disturbed)
        shed = shed_since(last.minute)
        here: dict[int, list[InstanceMinute]] = {}
        for one in last.instances:
            here.setdefault(one.gpu, []).append(one)
        for one in last.instances:
            said = predicted.get(one.id)
            if said is None or said.node != last.node or one.gpu in self._disturbed or one.id in self._moved:
                continue
            if abs(one.sm_percent - said.sm_percent) > SAME_PERCENT or not _is_batch(one, said):
                continue
            if not _is_company(one, here[one.gpu], said):
                continue
            ready = self._ready_since.get(one.id)
            if ready is None or ready + WARM > last.minute:
                continue
            # How long a batch takes is the same however many wait; how late answers are is not.
            late = None if one.owner in shed else _is_late(one, said, told)
            yield _observation(one, said, last.minute, late, power.get(one.gpu), settings)


def _observation(
    one: InstanceMinute,
    said: Prediction,
    minute: datetime,
    late: bool | None,
    power: float | None,
    settings: DriftTuning,
) -> Observation:
    batches = one.batches or (one.requests / one.batch_mean if one.batch_mean > 0 else 0.0)
    exec_ratio = None
    if batches >= settings.least_batches and one.busy_seconds > 0:
        exec_ratio = one.busy_seconds / batches * 1000 / said.exec_ms
    memory = (one.measured or {}).get("memoryGib")
    return Observation(
        key=said.key,
        profile=said.profile,
        shape=said.shape,
        instance=one.id,
        at=minute,
        exec_ratio=exec_ratio,
        fill=min(1.0, one.requests / batches / said.batch) if batches > 0 else 0.0,
        alone=said.alone,
        late=late,
        # A process that asks for what it was told shows nothing; one that takes more does.
        memory_ratio=memory / said.memory_gib if memory and memory > one.memory_gib * 1.01 else None,
        power_ratio=power,
    )


def _is_late(one: InstanceMinute, said: Prediction, seconds: float) -> bool | None:
    """Whether it missed its promise by more than chance, at no more than the load it was planned for."""
    answers = float(sum(one.latency_counts))
    asked = answers + one.errors
    if asked < 100 or asked / seconds > 1.02 * said.rate_per_second:
        return None
    allowed = 1 - said.percentile / 100
    missed = 1 - within_at_best(one.latency_counts, said.slo_ms) / asked  # a bucket's width proves nothing
    chances = min(asked, 1000 * seconds / (BURST_SLOS * said.slo_ms))
    return missed > allowed + SURE * sqrt(allowed * (1 - allowed) / chances)


def _is_batch(one: InstanceMinute, said: Prediction) -> bool:
    applied = (one.applied or {}).get("batch")
    return applied is None or applied == said.batch


def _is_company(one: InstanceMinute, here: Sequence[InstanceMinute], said: Prediction) -> bool:
    """Whether its neighbours are those that the prediction knows: on the way to a plan they may not be there yet."""
    services = {other.id for other in here if other.service and other.id != one.id}
    return services == said.beside and sum(bool(other.job) for other in here) == said.jobs_beside


def _power_ratios(word: ReportExcerpt, predicted: Mapping[str, Prediction], disturbed: set[int]) -> dict[int, float]:
    """By GPU: watts above idle over what its instances should draw for the time they were busy.

    Only where all that runs there is of one profile: what several draw together accuses none of them.
    """
    by_gpu: dict[int, list[tuple[Prediction | None, float]]] = {}
    for one in word.instances:
        by_gpu.setdefault(one.gpu, []).append((predicted.get(one.id), min(1.0, one.busy_seconds / 60)))
    found = {}
    for gpu in word.gpus:
        lines = by_gpu.get(gpu.index, [])
        known = [(said, busy) for said, busy in lines if said is not None]
        if not known or len(known) < len(lines) or gpu.index in disturbed or len({said.key for said, _ in known}) > 1:
            continue
        expected = sum(said.power_w * busy for said, busy in known)
        drawn = gpu.power_mean_w - known[0][0].idle_w
        if expected >= 20 and drawn > 0:
            found[gpu.index] = drawn / expected
    return found
