"""Mudi's claim M4: how many measurements it takes to find the best batch of a service beside a training.

A copy serves requests that arrive at random at the smallest SM% at which it keeps up with its rate, and the training
has the rest: a larger batch needs fewer SMs and takes longer. Latency is measured request by request on a simulated
batch server, a training's step with an error; searches see these alone, never the profile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp
from random import Random
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.control.formulate.problem import build_problem
from lab.evaluate.mudi.experiments import RATES
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from simulation.fleet_truth import interpolate
from simulation.serving.batches import serve
from solvers.latency import latency_at
from solvers.mudi.tuning import BatchTrial, BatchTuner, MeasuredBatch, Tuning
from solvers.planners.names import JOINT, MUDI
from solvers.planning.problem import Curve, JobProfile, Problem, Profile, Service

RANDOM, DOUBLED = "random batches", "powers of two"
MOST_BATCH = 64
COPIES = 60  # pairs of a service and a training, of each seed
RATE_SHARES = (0.2, 0.6)  # of the declared rate
BUSY_SHARE = 0.8  # of the time in which a copy works, at its SM%
REQUESTS = 4_000  # in each measurement
NOISE_SHARE = 0.05  # of a measured time: one standard deviation
CLOSE_SHARE, OFTEN_SHARE = 0.05, 0.95
EDGES = np.geomspace(0.01, 130.0, 1_900)  # of classes of latency, relative to the SLO
BUDGETS = (8, 12, 16, 20, 24, 32, 48)  # measurements allowed
Floats: TypeAlias = NDArray[np.float64]
Measure: TypeAlias = Callable[[int], MeasuredBatch]
Search: TypeAlias = Callable[[Tuning, Measure, Random], int | None]


@dataclass(frozen=True)
class TunedCopy:
    """A copy of a service at its rate, beside a training, as they really are."""

    service: Service
    profile: Profile
    training: JobProfile
    rate_per_second: float

    @property
    def slo_ms(self) -> float:
        return self.service.slo_ms

    @cached_property
    def times_ms(self) -> Mapping[int, tuple[float, float]]:
        """Returns the time of a batch and of a training's step by batch; batches that no SM% carries are left out."""
        found = {batch: self._times_ms(batch) for batch in range(1, MOST_BATCH + 1)}
        return {batch: times_ms for batch, times_ms in found.items() if times_ms}

    @cached_property
    def kept_step_ms(self) -> Mapping[int, float]:
        """Returns the time of a training's step by each batch that keeps the SLO."""
        return {
            batch: step_ms
            for batch, (exec_ms, step_ms) in self.times_ms.items()
            if latency_at(batch, exec_ms, self.rate_per_second, self.service.percentile) <= self.slo_ms
        }

    def is_close(self, batch: int | None) -> bool:
        """Returns whether this batch keeps the SLO, and trains nearly as fast as the best one."""
        return (
            batch is not None
            and batch in self.kept_step_ms
            and self.kept_step_ms[batch] <= (1 + CLOSE_SHARE) * min(self.kept_step_ms.values())
        )

    def _times_ms(self, batch: int) -> tuple[float, float] | None:
        curve = _interpolate_batch(self.profile, batch)
        least = self.training.units_per_second[0][0]
        for percent in range(curve[0][0], 100 - least + 1):
            rest = 100 - percent
            slowed = 1 + self.profile.demand.most_sensitivity * interpolate(self.training.demand.whole_pressure, rest)
            exec_ms = interpolate(curve, percent) * slowed
            if exec_ms * self.rate_per_second <= 1000 * BUSY_SHARE * batch:
                pressure = interpolate(self.profile.demand.whole_pressure, percent)
                pace = interpolate(self.training.units_per_second, rest)
                return exec_ms, 1000 * (1 + self.training.demand.most_sensitivity * pressure) / pace
        return None


class NoisyCopy:
    """Tries batches on a copy: its latencies come from requests that it serves, a step's time has an error."""

    def __init__(self, copy: TunedCopy, seed: str) -> None:
        self._copy, self._draws = copy, np.random.default_rng(list(seed.encode()))

    def measure(self, batch: int) -> MeasuredBatch:
        """Serves some thousand requests at this batch; a batch that no SM% carries takes as long as all of them."""
        copy = self._copy
        off = exp(NOISE_SHARE * self._draws.standard_normal())
        times_ms = copy.times_ms.get(batch)
        if times_ms is None:
            return MeasuredBatch(1e6 * off, 10 * copy.slo_ms * exp(NOISE_SHARE * self._draws.standard_normal()))
        exec_ms, step_ms = times_ms
        arrivals = np.cumsum(self._draws.exponential(1 / copy.rate_per_second, REQUESTS))
        return MeasuredBatch(step_ms * off, _served_ms(arrivals, batch, exec_ms, copy))


def _served_ms(arrivals_s: Floats, batch: int, exec_ms: float, copy: TunedCopy) -> float:
    """Returns the latency at the SLO's percentile of requests that arrive at these moments."""
    counts = np.zeros(len(EDGES) + 1, dtype=np.int64)
    edges_s: Floats = copy.slo_ms / 1000 * EDGES
    longest = len(arrivals_s)
    serve(
        arrivals_s, 0, batch, np.array([exec_ms / 1000]), 0.0, 0.0, np.inf, copy.slo_ms / 1000, np.inf, longest,
        edges_s, counts,
    )  # fmt: skip
    late = int(np.searchsorted(np.cumsum(counts), copy.service.percentile / 100 * counts.sum()))
    return float(1000 * edges_s[min(late, len(edges_s) - 1)])


def _interpolate_batch(profile: Profile, batch: int) -> Curve:
    """Returns the curve of a batch between or beyond the declared ones: times are linear in the batch."""
    known = sorted(profile.latency_ms)
    above = next((at for at in range(1, len(known)) if known[at] >= batch), len(known) - 1)
    low, high = known[above - 1], known[above]
    share = (batch - low) / (high - low)
    pairs = zip(profile.latency_ms[low], profile.latency_ms[high], strict=True)
    return tuple((percent, low_ms + share * (high_ms - low_ms)) for (percent, low_ms), (_, high_ms) in pairs)


def batch_figures(seeds: Sequence[int]) -> dict[str, MeasuredFigure]:
    """Returns the figure of claim M4; Mudi's search is ours."""
    by_seed = [needed_measurements(tuned_copies(seed, COPIES), seed) for seed in seeds]
    return {"batches": measured_alike([{**found, MUDI: found[JOINT]} for found in by_seed])}


def needed_measurements(copies: Sequence[TunedCopy], seed: int) -> dict[str, float]:
    """Returns how many measurements each search needs."""
    return {name: _least_budget(search, copies, f"{seed} {name}") for name, search in SEARCHES.items()}


def _least_budget(search: Search, copies: Sequence[TunedCopy], seed: str) -> float:
    return next((budget for budget in BUDGETS if right_share(search, copies, budget, seed) >= OFTEN_SHARE), MOST_BATCH)


def right_share(search: Search, copies: Sequence[TunedCopy], budget: int, seed: str) -> float:
    """Returns the share of the copies for which a search finds a batch that is close to the best."""
    right = 0
    for number, copy in enumerate(copies):
        name = f"{seed} {budget} {number}"
        tuning = Tuning(copy.slo_ms, MOST_BATCH, NOISE_SHARE, budget)
        right += copy.is_close(search(tuning, NoisyCopy(copy, name).measure, Random(name)))  # noqa: S311
    return right / len(copies)


def tuned_copies(seed: int, count: int) -> list[TunedCopy]:
    """Draws pairs of a service and a training for which some batch keeps the SLO."""
    problem, draws = build_problem(testbed("mudi", RATES)), Random(f"copies {seed}")  # noqa: S311
    found: list[TunedCopy] = []
    while len(found) < count:
        copy = _draw(problem, draws)
        if copy.kept_step_ms:
            found.append(copy)
    return found


def _draw(problem: Problem, draws: Random) -> TunedCopy:
    service = problem.services[draws.choice(sorted(problem.services))]
    profile = problem.profile(service.name, service.variants[0], next(iter(problem.nodes)))
    job = problem.jobs[draws.choice(sorted(problem.jobs))]
    assert profile
    rate = draws.uniform(*RATE_SHARES) * service.rate_per_second
    return TunedCopy(service, profile, next(iter(job.profiles.values())), rate)


def _choose_by_belief(tuning: Tuning, measure: Measure, draws: Random) -> int | None:
    tuner = BatchTuner(tuning)
    while tuner.remaining > 0:
        batch = tuner.next()
        tuner.add([BatchTrial(batch, measure(batch))])
    return tuner.best()


def _choose_at_random(tuning: Tuning, measure: Measure, draws: Random) -> int | None:
    return _fastest(tuning, measure, [draws.randint(1, tuning.most_batch) for _ in range(tuning.evaluations)])


def _doubled(tuning: Tuning, measure: Measure, draws: Random) -> int | None:
    powers = [2**step for step in range(tuning.most_batch.bit_length())]
    return _fastest(tuning, measure, [powers[trial % len(powers)] for trial in range(tuning.evaluations)])


def _fastest(tuning: Tuning, measure: Measure, batches: Sequence[int]) -> int | None:
    """Returns the batch with the fastest training of those that keep the SLO, by the means of what was measured."""
    tried = defaultdict[int, list[MeasuredBatch]](list)
    for batch in batches:
        tried[batch].append(measure(batch))
    kept = {
        batch: fmean(trial.iteration_ms for trial in trials)
        for batch, trials in tried.items()
        if fmean(trial.latency_ms for trial in trials) <= tuning.slo_ms
    }
    return min(kept, key=lambda batch: (kept[batch], batch), default=None)


SEARCHES: Mapping[str, Search] = {RANDOM: _choose_at_random, DOUBLED: _doubled, JOINT: _choose_by_belief}
