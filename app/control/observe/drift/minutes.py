"""Takes observations of instances from a node's minutes, if the minute went as planned.

A minute does not count for an instance that is cold, is being handed over or differs from the plan, nor while its GPU
is throttled by heat or power, runs off its planned clock, or has instances that start or stop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import TypeAlias

from agents.contract.fields import LATENCY_EDGES_MS
from agents.contract.reports import InstanceMinute
from app.control.domain.latencies import count_within_at_best, quantile_ms
from app.control.observe.drift.predict import Prediction
from app.control.observe.drift.tuning import DriftTuning
from app.control.observe.loads.chance import exceeds_chance
from app.control.observe.loads.reports import ReportExcerpt

WHOLE_SECONDS = 50.0  # of a minute must have been reported
WARM_UP = timedelta(seconds=60)  # after an instance became ready
SAME_SM_PERCENT = 0.51
LEAST_REQUESTS = 100  # of a minute, to judge how late answers are
OVERLOAD_FACTOR = 1.02  # times the planned rate: misses under more load prove nothing
MEMORY_GROWTH_FACTOR = 1.01  # times the assigned memory: a process that takes no more proves nothing
LEAST_EXPECTED_W = 20.0  # to compare the drawn power with

ShedSince: TypeAlias = Callable[[datetime], Collection[str]]  # services of which gateways rejected requests


def no_shedding(moment: datetime) -> Collection[str]:
    """Returns no services, for readers without gateways."""
    return ()


@dataclass(frozen=True, slots=True)
class Observation:
    """An instance in a minute that counts. Ratios are measured over predicted, by the profile without correction."""

    key: str
    profile: int
    batch: int
    sm_percent: float
    instance: str
    at: datetime
    exec_ratio: float | None = None  # None: its server does not report it
    fill: float = 0.0  # how full batches were
    impacts: tuple[tuple[str, float], ...] = ()  # neighbour -> declared slowdown; empty: alone on its GPU
    late: bool | None = None  # missed its SLO under no more than the planned load; None: too few answers
    memory_ratio: float | None = None
    power_ratio: float | None = None
    latency_ms: float | None = None  # at its SLO's percentile; None: too few answers


class NodeMinutes:
    """The minutes of a node, from its reports."""

    def __init__(self) -> None:
        self._first: ReportExcerpt | None = None
        self._last: ReportExcerpt | None = None
        self._disturbed: set[int] = set()  # GPUs, in the minute so far
        self._moved: set[str] = set()  # instances, likewise
        self._ready_since: dict[str, datetime] = {}

    def next(
        self,
        report: ReportExcerpt,
        predicted: Mapping[str, Prediction],
        settings: DriftTuning,
        shed_since: ShedSince = no_shedding,
    ) -> Iterator[Observation]:
        """Yields the observations of the previous minute, once a report is of the next minute."""
        last = self._last
        if last is not None and report.order <= last.order:
            return
        if last is not None and report.minute != last.minute:
            yield from self._finish(predicted, settings, shed_since)
            self._first, self._disturbed, self._moved = None, set(), set()
        if self._first is None:
            self._first = report
        self._look(report, last)
        self._last = report

    def _look(self, report: ReportExcerpt, last: ReportExcerpt | None) -> None:
        """Notes what in this report spoils the minute."""
        copies = {copy.id: copy for copy in report.copies}
        for copy in report.copies:
            if copy.stage != "ready":
                self._disturbed.add(copy.gpu)
        if last is not None:
            for copy in last.copies:
                if copy.id not in copies:
                    self._disturbed.add(copy.gpu)
            known = {copy.id for copy in last.copies}
            self._disturbed |= {copy.gpu for copy in report.copies if copy.id not in known}
        for gpu in report.gpus:
            if gpu.throttle_reasons or gpu.health != "ok":
                self._disturbed.add(gpu.index)
        for excursion in report.excursions:
            if excursion.instance:
                self._moved.add(excursion.instance)
            else:
                self._disturbed.add(excursion.gpu)
        ready = {copy.instance for copy in report.copies if copy.stage == "ready"}
        for instance in self._ready_since.keys() - ready:
            del self._ready_since[instance]
        for instance in ready - self._ready_since.keys():
            self._ready_since[instance] = report.at

    def _finish(
        self, predicted: Mapping[str, Prediction], settings: DriftTuning, shed_since: ShedSince
    ) -> Iterator[Observation]:
        first, last = self._first, self._last
        if first is None or last is None:
            return
        seconds = min((last.at - last.minute).total_seconds(), 60.0)
        if seconds < WHOLE_SECONDS or (first.at - first.minute).total_seconds() > 60.0 - WHOLE_SECONDS + 5.0:
            return
        power = _power_ratios(last, predicted, self._disturbed)
        shed = shed_since(last.minute)
        here: dict[int, list[InstanceMinute]] = {}
        for instance in last.instances:
            here.setdefault(instance.gpu, []).append(instance)
        for instance in last.instances:
            prediction = predicted.get(instance.id)
            if (
                prediction is None
                or prediction.node != last.node
                or instance.gpu in self._disturbed
                or instance.id in self._moved
                or not _is_unchanged(instance, first, last)
            ):
                continue
            if abs(instance.sm_percent - prediction.sm_percent) > SAME_SM_PERCENT or not _is_batch(
                instance, prediction
            ):
                continue
            if not _is_company(instance, here[instance.gpu], prediction):
                continue
            ready = self._ready_since.get(instance.id)
            if ready is None or ready + WARM_UP > last.minute:
                continue
            # Rejected requests do not change how long a batch takes, but how late answers are.
            late = None if instance.owner in shed else _is_late(instance, prediction, seconds)
            yield _observation(instance, prediction, last.minute, late, power.get(instance.gpu), settings)


def _observation(
    instance: InstanceMinute,
    prediction: Prediction,
    minute: datetime,
    late: bool | None,
    power: float | None,
    settings: DriftTuning,
) -> Observation:
    batches = instance.batches or (instance.requests / instance.batch_mean if instance.batch_mean > 0 else 0.0)
    exec_ratio = None
    if batches >= settings.least_batches and is_credible(instance, batches, prediction):
        exec_ratio = instance.busy_seconds / batches * 1000 / prediction.exec_ms
    memory = (instance.measured or {}).get("memoryGib")
    is_timed = sum(instance.latency_counts) >= LEAST_REQUESTS
    return Observation(
        key=prediction.key,
        profile=prediction.profile,
        batch=prediction.batch,
        sm_percent=prediction.sm_percent,
        instance=instance.id,
        at=minute,
        exec_ratio=exec_ratio,
        fill=min(1.0, instance.requests / batches / prediction.batch) if batches > 0 else 0.0,
        impacts=prediction.impacts,
        late=late,
        # A process within its assigned memory proves nothing; a process that takes more does.
        memory_ratio=memory / prediction.memory_gib
        if memory and memory > instance.memory_gib * MEMORY_GROWTH_FACTOR
        else None,
        power_ratio=power,
        latency_ms=quantile_ms(instance.latency_counts, prediction.percentile) if is_timed else None,
    )


def _is_late(instance: InstanceMinute, prediction: Prediction, seconds: float) -> bool | None:
    """Returns whether it missed its SLO by more than chance, at no more than its planned load; None if unknown."""
    answers = float(sum(instance.latency_counts))
    requests = answers + instance.errors
    if requests < LEAST_REQUESTS or requests / seconds > OVERLOAD_FACTOR * prediction.rate_per_second:
        return None
    allowed = 1 - prediction.percentile / 100
    # A bucket's width proves nothing.
    missed = 1 - count_within_at_best(instance.latency_counts, prediction.slo_ms) / requests
    return exceeds_chance(missed, allowed, requests, seconds, prediction.slo_ms)


def _is_unchanged(instance: InstanceMinute, first: ReportExcerpt, last: ReportExcerpt) -> bool:
    """Returns whether its batch and the clock of its GPU stayed the same, whatever else its node was assigned."""
    if first.generation == last.generation:
        return True
    before = next((known for known in first.instances if known.id == instance.id), None)
    knobs = (instance.requested, instance.applied)
    if before is None or None in knobs or (before.requested, before.applied) != knobs:
        return False
    clocks = [next((gpu for gpu in report.gpus if gpu.index == instance.gpu), None) for report in (first, last)]
    states = [(gpu.requested, gpu.applied) for gpu in clocks if gpu]
    return len(states) == 2 and None not in states[0] and states[0] == states[1]


def _is_batch(instance: InstanceMinute, prediction: Prediction) -> bool:
    applied = (instance.applied or {}).get("batch")
    return applied is None or applied == prediction.batch


def _is_company(instance: InstanceMinute, here: Sequence[InstanceMinute], prediction: Prediction) -> bool:
    """Returns whether its neighbours are as predicted: during a rollout some may still be missing."""
    services = {other.id for other in here if other.service and other.id != instance.id}
    return services == prediction.neighbours and sum(bool(other.job) for other in here) == prediction.neighbour_jobs


def _power_ratios(report: ReportExcerpt, predicted: Mapping[str, Prediction], disturbed: set[int]) -> dict[int, float]:
    """Returns, by GPU, the watts above idle over what its instances should draw for the time they were busy.

    Only GPUs with a single profile count, because the power of several profiles cannot be separated.
    """
    by_gpu: dict[int, list[tuple[Prediction | None, float]]] = {}
    for instance in report.instances:
        by_gpu.setdefault(instance.gpu, []).append((predicted.get(instance.id), min(1.0, instance.busy_seconds / 60)))
    found = {}
    for gpu in report.gpus:
        lines = by_gpu.get(gpu.index, [])
        known = [(prediction, busy) for prediction, busy in lines if prediction is not None]
        if (
            not known
            or len(known) < len(lines)
            or gpu.index in disturbed
            or len({prediction.key for prediction, _ in known}) > 1
        ):
            continue
        expected = sum(prediction.power_w * busy for prediction, busy in known)
        drawn = gpu.power_mean_w - known[0][0].idle_w
        if expected >= LEAST_EXPECTED_W and drawn > 0:
            found[gpu.index] = drawn / expected
    return found


MINUTE_SECONDS = 60.0
OVERRUN_FACTOR = 1.05  # a batch may run over the minute's end, and clocks differ
FEW_BATCHES = 3.0  # by which the counts of requests and batches may differ at the minute's ends
QUICKER_FACTOR = 0.75  # of the reported time: batches differ
MOST_QUICKER_SHARE = 0.5  # of answers
FASTER_SHARE = 0.9  # of the declared time; noise alone is no claim to be faster
SLOWER_FACTOR = 1.25  # times the declared time, which leaves some for the way to the gateway
IDLE_SHARE = 0.5  # of the minute: then so many requests find the server idle
MOST_SLOWER_SHARE = 0.75  # of answers, while it is idle for that long
LEAST_ANSWERS = 50


def is_credible(instance: InstanceMinute, batches: float, prediction: Prediction) -> bool:
    """Returns whether these batches can have taken so long.

    Nothing is busy for longer than time passes; a batch holds no more requests than the server may put together; and
    no answer comes before its batch has ended, so most answers cannot be quicker than a batch. A server that says to
    be much faster than declared, and idle most of the time, answers some requests no slower than declared.
    """
    busy = instance.busy_seconds
    if not (isfinite(busy) and isfinite(batches) and busy > 0 and batches > 0):
        return False
    exec_ms = busy / batches * 1000
    if busy > MINUTE_SECONDS * OVERRUN_FACTOR + exec_ms / 1000:
        return False
    if instance.requests - instance.errors > (batches + FEW_BATCHES) * prediction.batch * OVERRUN_FACTOR:
        return False
    answers = sum(instance.latency_counts)
    if answers < LEAST_ANSWERS:
        return True
    if sum(instance.latency_counts[: bisect_left(LATENCY_EDGES_MS, QUICKER_FACTOR * exec_ms)]) > (
        MOST_QUICKER_SHARE * answers
    ):
        return False
    is_faster = exec_ms < FASTER_SHARE * prediction.exec_ms and busy <= IDLE_SHARE * MINUTE_SECONDS
    late_ms = SLOWER_FACTOR * prediction.exec_ms + prediction.batch_timeout_ms
    surely_slower = answers - count_within_at_best(instance.latency_counts, late_ms)
    return not (is_faster and surely_slower > MOST_SLOWER_SHARE * answers)
