"""Tries batches of running instances beside jobs, and keeps the batch with which the jobs are fastest (M4).

A trial is a minute that went as planned: the latency of the instance's requests at its SLO's percentile, and the pace
of the jobs beside it. GP-LCB chooses the next batch, which runs at the smallest SM% that carries the rate (M5). Trials
beside other jobs, for another SLO, or at a much different rate say nothing about the present ones, so they are
forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp, fsum, log
from typing import Any

from solvers.mudi.fleet.devices import DeviceShares, MudiDevice
from solvers.mudi.tuning import BatchTrial, BatchTuner, MeasuredBatch, Tuning
from solvers.planning.problem import Knowledge, RunningState

TRIALS_PER_BATCH, MOST_TRIALS = 2, 24  # Mudi needs fewer than 25
NOISE_SHARE = 0.1  # of a measured time: latencies are known in classes a fifth wide, and loads move
SAME_RATE_SHARE = 0.25
SETTLING_SECONDS = 60.0  # after a change, as the pace of a job is smoothed over a minute
MOST_CHOICES = 16  # in one plan: each takes some hundredths of a second


@dataclass(slots=True)
class InstanceTrials:
    """The trials of one instance beside the same jobs, for the same SLO, at about the same rate."""

    jobs: list[str]
    slo: list[float]  # milliseconds, and the percentile of the measured latencies
    rate_per_second: float
    counted_at: float  # the last minute that counts; minutes count that began later
    trials: list[list[float]] = field(default_factory=list)  # batch, milliseconds of a job's step, latency
    batch: int | None = None  # to run with; None: the planner's own choice
    is_chosen: bool = False  # for the trials so far
    is_over: bool = False  # all trials are spent, and forgotten but for the best batch

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> InstanceTrials:
        """Returns remembered trials, with a list of their own: plans must leave what they were asked with as it is."""
        return cls(**{**stated, "trials": [*stated["trials"]]})

    def covers(self, jobs: Sequence[str], slo: Sequence[float], rate_per_second: float) -> bool:
        """Returns whether trials beside these jobs, for this SLO and rate, belong to the series."""
        off = abs(rate_per_second - self.rate_per_second)
        is_same = list(jobs) == self.jobs and list(slo) == self.slo
        return is_same and off <= SAME_RATE_SHARE * self.rate_per_second


class FleetTrials:
    """The trials of all instances that have jobs beside them."""

    def __init__(self, state: RunningState | None, knowledge: Knowledge) -> None:
        self._state = state
        self._before = {name: InstanceTrials.of(stated) for name, stated in knowledge.get("trials", {}).items()}
        self._series: dict[str, InstanceTrials] = {}
        self._choices = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._series)

    def knowledge(self) -> Knowledge:
        """Returns what to remember, as JSON."""
        stated: Mapping[str, Any] = {name: asdict(series) for name, series in sorted(self._series.items())}
        return {"trials": stated} if stated else {}

    def set_batch(self, device: MudiDevice) -> None:
        """Gives the instance of a GPU with jobs the batch to try next, or the best of those tried."""
        now = self._state.now if self._state else None
        if now is None or not device.jobs or len(device.residents) != 1:
            return
        resident = device.residents[0]
        jobs = sorted(job.name for job in device.jobs)
        slo = [resident.service.slo_ms, resident.service.percentile]
        series = self._before.get(resident.seat.id)
        if series is None or not series.covers(jobs, slo, resident.rate_per_second):
            series = InstanceTrials(jobs, slo, resident.rate_per_second, now.timestamp() + SETTLING_SECONDS)
        self._series[resident.seat.id] = series
        self._count(device, series)
        possible = _possible_shares(device)
        if len(possible) > 1 and not series.is_chosen and self._choices < MOST_CHOICES:
            self._choices += 1
            _choose(series, sorted(possible), resident.service.slo_ms)
            if series.batch != resident.seat.batch:
                series.counted_at = now.timestamp() + SETTLING_SECONDS
        if series.batch in possible:
            device.residents = [replace(resident, batch=series.batch)]
            device.shares = possible[series.batch]

    def _count(self, device: MudiDevice, series: InstanceTrials) -> None:
        """Counts the last minute of the instance as a trial, if it is new and of this series."""
        state, seat = self._state, device.residents[0].seat
        assert state
        measured = state.measured.get(seat.id)
        beside = sorted(job.job for job in state.jobs if job.place == device.place)
        paces = [state.paces.get(name, 0.0) for name in series.jobs]
        if series.is_over or measured is None or measured.batch != seat.batch:
            return
        if measured.at.timestamp() > series.counted_at and beside == series.jobs and min(paces) > 0:
            # The geometric mean: a job's steps may be a thousand times as long as another's.
            step_ms = 1000 * exp(-fsum(map(log, paces)) / len(paces))
            series.trials.append([measured.batch, float(f"{step_ms:.6g}"), float(f"{measured.latency_ms:.6g}")])
            series.counted_at, series.is_chosen = measured.at.timestamp(), False


def _possible_shares(device: MudiDevice) -> dict[int, DeviceShares]:
    """Returns the GPU's shares by batch, for each batch with which every limit and SLO holds by the profiles."""
    resident = device.residents[0]
    possible = {}
    for batch in resident.profile.latency_ms:
        with_batch = replace(device, residents=[replace(resident, batch=batch)])
        if shares := with_batch.share_with_jobs(device.jobs):
            possible[batch] = shares
    return possible


def _choose(series: InstanceTrials, batches: Sequence[int], slo_ms: float) -> None:
    """Chooses the batch to try next; once all trials are spent, the best one, or none if none keeps the SLO."""
    evaluations = min(MOST_TRIALS, TRIALS_PER_BATCH * len(batches))
    tuner = BatchTuner(Tuning(slo_ms, max(batches), NOISE_SHARE, evaluations, tuple(batches)))
    trials = [
        BatchTrial(int(batch), MeasuredBatch(step_ms, latency_ms)) for batch, step_ms, latency_ms in series.trials
    ]
    tuner.add([trial for trial in trials if trial.batch in batches])
    series.is_chosen, series.is_over = True, tuner.remaining <= 0
    series.batch = tuner.best() if series.is_over else tuner.next()
    if series.is_over:
        series.trials.clear()
