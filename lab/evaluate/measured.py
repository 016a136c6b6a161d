"""Runs a fleet under one planner in virtual time, and measures what it serves, holds and uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.contract.fields import LATENCY_EDGES_MS
from app.control.formulate.problem import qualify_name
from app.manifests.model import JSON, Manifest
from app.manifests.offline import DeclaredFiles
from lab.evaluate.use import SmUse, estimate_fleet_power_w, memory_prices, sm_use
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.history import CHANGES
from simulation.measure.held import held_per_hour
from simulation.measure.jobs import seconds_of_jobs
from simulation.measure.run import set_auto
from simulation.measure.working import energy_mj, gpu_use
from simulation.run import Simulation, open_simulation
from simulation.serving.totals import Total
from simulation.shapes import Shape
from simulation.world import put, set_policy, truth_of
from solvers.planners.names import JOINT

TICK_SECONDS = 5.0
WORK = 40  # of each search of a cycle by the joint planner
SAMPLE_SECONDS = 30.0
ACCURACY_DIGITS = 9  # a sum of millions of accuracies is no more exact
EDGES_MS = np.array([0.0, *LATENCY_EDGES_MS, LATENCY_EDGES_MS[-1]])  # of classes of latency; the last has no end
CYCLE_SECONDS = 15.0  # of all planners, as kube-controller-manager has it


@dataclass(frozen=True, slots=True)
class JobArrival:
    """A job that is declared while the fleet runs."""

    at_seconds: float
    job: Manifest


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """A fleet and its load for one planner, and for how long; nothing before `from_seconds` is measured."""

    experiment: str
    planner: str
    seed: int
    world: DeclaredFiles
    shapes: Mapping[str, Shape]
    seconds: float
    from_seconds: float = 120.0
    arrivals: Sequence[JobArrival] = ()


@dataclass(frozen=True, slots=True)
class EvaluationSample:
    """Rates, violations and use over the seconds since the last sample, and prices an hour at its end."""

    at: float
    asked_per_second: float
    within_per_second: float  # answered within the SLO
    violations_percent: float
    held_per_hour: float
    used_memory_per_hour: float  # the price of the GPU memory of instances
    whole_memory_per_hour: float  # the price of all memory of a GPU for each of its instances
    used_memory_by_service: Mapping[str, float]
    whole_memory_by_service: Mapping[str, float]
    utilisation: float  # of all SMs of the fleet
    used_utilisation: float  # of the SMs of GPUs in use
    instances: int
    response_ms: float = 0.0  # of answers, on average


@dataclass(slots=True)
class EvaluationResult:
    """The samples and totals of a run."""

    experiment: str
    planner: str
    seed: int
    samples: list[EvaluationSample] = field(default_factory=list)
    requests: int = 0  # that ended, answered or not
    violations: int = 0  # late, refused, failed or turned away
    worst_service: float = 1.0  # the least share of a service's requests within its SLO
    changes: Mapping[str, int] = field(default_factory=dict)
    p99_ms: float = 0.0  # of all answers
    accuracy_loss_percent: float = 0.0  # of the service that loses most, from the best variant that it admits
    power_w: float = 0.0  # of all GPUs, busy or idle
    utilisation_spread_percent: float = 0.0  # standard deviation among GPUs of their mean share of SMs at work
    sms_at_work_percent: float = 0.0  # of all GPUs, those of jobs included
    jobs_done: int = 0
    completion_seconds: float = 0.0  # of jobs since they came, on average; one not done counts until the run's end
    estimated_power_w: float = 0.0  # of all instances, by OLTunes' formula (7)

    @property
    def violations_percent(self) -> float:
        return 100 * self.violations / max(1, self.requests)

    def mean(self, name: str) -> float:
        """Returns the mean over time of a field of the samples."""
        return fsum(getattr(sample, name) for sample in self.samples) / max(1, len(self.samples))

    def figures(self) -> dict[str, Any]:
        """Returns what the JSON has of a run."""
        return {
            "experiment": self.experiment,
            "planner": self.planner,
            "seed": self.seed,
            "requests": self.requests,
            "violationsPercent": round(self.violations_percent, 4),
            "worstServiceWithinSlo": round(self.worst_service, 6),
            "heldPerHour": round(self.mean("held_per_hour"), 6),
            "usedMemoryPerHour": round(self.mean("used_memory_per_hour"), 6),
            "wholeMemoryPerHour": round(self.mean("whole_memory_per_hour"), 6),
            "utilisation": round(self.mean("utilisation"), 6),
            "usedUtilisation": round(self.mean("used_utilisation"), 6),
            "p99Ms": round(self.p99_ms, 3),
            "accuracyLossPercent": round(self.accuracy_loss_percent, 4),
            "powerW": round(self.power_w, 3),
            "estimatedPowerW": round(self.estimated_power_w, 3),
            "utilisationSpreadPercent": round(self.utilisation_spread_percent, 4),
            "smsAtWorkPercent": round(self.sms_at_work_percent, 4),
            "jobsDone": self.jobs_done,
            "completionSeconds": round(self.completion_seconds, 3),
            "changes": dict(self.changes),
        }


def run_evaluation(order: EvaluationRun, database_url: str) -> EvaluationResult:
    """Runs the fleet on an empty, migrated database. The same order gives the same result."""
    policy: dict[str, JSON] = {"planner": order.planner, "cycleSeconds": CYCLE_SECONDS}
    world = set_policy(set_auto(order.world), policy)
    work = WORK if order.planner == JOINT else 0  # without a bound
    with open_simulation(database_url, world, order.shapes, seed=order.seed, work=work) as simulation:
        if order.arrivals:  # the truth knows jobs before they are declared
            later = {arrival.job.key: arrival.job for arrival in order.arrivals}
            simulation.fleet.follow(truth_of(DeclaredFiles({**world.manifests, **later})))
        return _measured(order, simulation)


def _measured(order: EvaluationRun, simulation: Simulation) -> EvaluationResult:
    found = EvaluationResult(order.experiment, order.planner, order.seed)
    fleet = simulation.fleet
    fleet.patient = True  # while the first copies come up
    before = last = _totals(fleet)
    energy, busy, ticks = energy_mj(fleet), Counter[tuple[str, str]](), 0
    at_work = estimated_w = 0.0
    coming = sorted(order.arrivals, key=lambda arrival: arrival.at_seconds)
    sampled_at, use = order.from_seconds, SmUse()
    for now in simulation.seconds(order.seconds, TICK_SECONDS):
        while coming and coming[0].at_seconds <= now:
            arrived = coming.pop(0).job
            put(simulation.database, DeclaredFiles({arrived.key: arrived}))
        if now <= order.from_seconds:
            before = last = _totals(fleet)
            energy = energy_mj(fleet)
            continue
        fleet.patient = False
        use += sm_use(fleet)
        busy.update(gpu_use(fleet))
        at_work += fmean(gpu_use(fleet, with_jobs=True).values())
        estimated_w += estimate_fleet_power_w(fleet)
        ticks += 1
        if now >= sampled_at + SAMPLE_SECONDS:
            totals = _totals(fleet)
            found.samples.append(_sample(fleet, now, totals, last, now - sampled_at, use))
            sampled_at, last, use = now, totals, SmUse()
    after = _totals(fleet)
    ended, within = _ended(after, before)
    found.requests, found.violations = sum(ended.values()), sum(ended.values()) - sum(within.values())
    found.worst_service = min(within[name] / ended[name] if ended[name] else 1.0 for name in after)
    found.p99_ms = _p99_ms([after[name].counts - before[name].counts for name in after])
    found.accuracy_loss_percent = max(_accuracy_loss(fleet, name, after[name], before[name]) for name in after)
    found.power_w = (energy_mj(fleet) - energy) / 1000 / max(1.0, order.seconds - order.from_seconds)
    found.utilisation_spread_percent = 100 * pstdev(busy[gpu] / max(1, ticks) for gpu in gpu_use(fleet))
    found.sms_at_work_percent = 100 * at_work / max(1, ticks)
    found.estimated_power_w = estimated_w / max(1, ticks)
    jobs = seconds_of_jobs(simulation)
    found.jobs_done = sum(seconds is not None for seconds in jobs.values())
    came = {qualify_name(arrival.job): arrival.at_seconds for arrival in order.arrivals}
    lasted = [(order.seconds if seconds is None else seconds) - came.get(name, 0.0) for name, seconds in jobs.items()]
    found.completion_seconds = fsum(lasted) / max(1, len(jobs))
    kinds = simulation.history.kinds(order.from_seconds)
    found.changes = {name: kinds[name] for name in CHANGES}
    return found


def _p99_ms(by_service: Sequence[NDArray[np.int64]]) -> float:
    """Returns the latency that 99 % of all answers do not exceed, between the edges of its class."""
    counts = np.sum(by_service, axis=0)
    whole = int(counts.sum())
    if not whole:
        return 0.0
    return float(np.interp(0.99 * whole, [0, *np.cumsum(counts)], EDGES_MS))


def _mean_ms(by_service: Sequence[NDArray[np.int64]]) -> float:
    """Returns the mean latency of all answers; each counts as the middle of its class."""
    counts = np.sum(by_service, axis=0)
    middles = (EDGES_MS[1:] + EDGES_MS[:-1]) / 2
    return float(counts @ middles / max(1, counts.sum()))


def _accuracy_loss(fleet: SimulatedFleet, name: str, after: Total, before: Total) -> float:
    """Returns how far the mean accuracy of a service's answers is below its best variant's, in per cent."""
    answered = after.answered - before.answered
    service = fleet.truth.problem.services[name]
    known = {variant.name: variant.accuracy for variant in fleet.truth.problem.models[service.model]}
    best = max((known[variant] for variant in service.variants), default=0.0)
    if not answered or not best:
        return 0.0
    return round(100 * max(0.0, 1 - (after.accuracy_sum - before.accuracy_sum) / answered / best), ACCURACY_DIGITS)


def _totals(fleet: SimulatedFleet) -> dict[str, Total]:
    return {name: total.copied() for name, total in fleet.services.items()}


def _ended(after: Mapping[str, Total], before: Mapping[str, Total]) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the requests of each service that ended in between, and those of them within its SLO."""
    ended = {
        name: total.answered + total.errors - before[name].answered - before[name].errors
        for name, total in after.items()
    }
    return ended, {name: total.within - before[name].within for name, total in after.items()}


def _sample(
    fleet: SimulatedFleet, now: float, after: Mapping[str, Total], before: Mapping[str, Total], seconds: float,
    use: SmUse,
) -> EvaluationSample:  # fmt: skip
    ended, within = _ended(after, before)
    asked = sum(total.requests - before[name].requests for name, total in after.items())
    used, whole = memory_prices(fleet)
    requests = sum(ended.values())
    return EvaluationSample(
        at=now,
        asked_per_second=asked / seconds,
        within_per_second=sum(within.values()) / seconds,
        violations_percent=100 * (1 - sum(within.values()) / requests) if requests else 0.0,
        held_per_hour=held_per_hour(fleet),
        used_memory_per_hour=fsum(used.values()),
        whole_memory_per_hour=fsum(whole.values()),
        used_memory_by_service=used,
        whole_memory_by_service=whole,
        utilisation=use.fleet_share,
        used_utilisation=use.used_share,
        instances=sum(fleet.ready(name) for name in fleet.services),
        response_ms=_mean_ms([total.counts - before[name].counts for name, total in after.items()]),
    )
