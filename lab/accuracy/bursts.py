"""The worth of planning for bursts: services whose gaps are Gamma, planned with and without their burstiness.

Every third service has Poisson arrivals, every third gaps of a coefficient of variation of 2, every third of 4. Three
plans are compared: one that knows the dispersion of each service's counts, one that takes all for Poisson, and one that
does so at rates raised alike until it costs as much as the first. No arrivals are those of the planner's model. Each
instance is simulated with its random share of the service's requests. It reads no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from benchmarks.families import family, multiply_gpus
from lab.accuracy.accuracy_row import AccuracyRow
from solvers.compiled import njit
from solvers.latency import variation_of
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, solve

GPUS, SERVICES, MORE_GPUS, LOAD = 16, 12, 4, 0.5
SEEDS = range(3)
GAPS = (1.0, 2.0, 4.0)  # coefficients of variation, in turn
REQUESTS = 400_000
WORK = 40
TRIES = 6  # of a factor on all rates that costs as much
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """A plan's cost, and the share of requests in time by service."""

    cost: float
    attained: Mapping[str, float]


def rows(data: Path) -> list[AccuracyRow]:
    """Returns the services that keep their SLO, by the variation of their gaps, and what the plans cost."""
    plans = ("aware", "poisson", "same")
    spare: dict[str, dict[float, list[float]]] = {plan: {gap: [] for gap in GAPS} for plan in plans}
    costs: dict[str, list[float]] = {plan: [] for plan in spare}
    for seed in SEEDS:
        plain = multiply_gpus(family("A", GPUS, SERVICES, seed, LOAD), MORE_GPUS)
        gaps = {name: GAPS[place % len(GAPS)] for place, name in enumerate(sorted(plain.services))}
        arrivals = {name: gamma_arrivals(plain, name, gap, seed) for name, gap in gaps.items()}
        aware = outcome(state_burstiness(plain, arrivals), plain, arrivals)
        found = {
            "aware": aware,
            "poisson": outcome(plain, plain, arrivals),
            "same": judge_equal_cost(plain, arrivals, aware),
        }
        for plan, result in found.items():
            costs[plan].append(result.cost)
            for name, gap in gaps.items():
                spare[plan][gap].append(100.0 * result.attained[name] - plain.services[name].percentile)
    cost = ", ".join(f"{plan} {mean(costs[plan]):.4g}" for plan in costs)
    return [_row(gap, {plan: spare[plan][gap] for plan in spare}, cost) for gap in GAPS]


def _row(gap: float, spare: Mapping[str, Sequence[float]], cost: str) -> AccuracyRow:
    """Returns a row from how far each service is above its percentile."""
    kept = {plan: 100.0 * mean(points >= 0 for points in of) for plan, of in spare.items()}
    worst = ", ".join(f"{plan} {min(of):.2f}" for plan, of in spare.items())
    return AccuracyRow(
        f"bursts.cv{gap:g}",
        "",
        len(spare["aware"]),
        kept["aware"],
        {"poisson": kept["poisson"], "same_cost": kept["same"]},
        "% of services keep their SLO",
        f"an hour: {cost}; worst, in points above the percentile: {worst}",
    )


def gamma_arrivals(problem: Problem, name: str, gap: float, seed: int) -> Floats:
    """Returns the arrivals of a service at its gateway, in seconds."""
    random = np.random.default_rng([seed, *name.encode()])
    times: Floats = np.cumsum(random.gamma(1 / gap**2, gap**2, REQUESTS)) / problem.services[name].rate_per_second
    return times


def state_burstiness(problem: Problem, arrivals: Mapping[str, Floats]) -> Problem:
    """Returns the problem as a manifest with each service's burstiness states it."""
    services = {}
    for name, service in problem.services.items():
        counts = np.bincount((arrivals[name] / (service.slo_ms / 1000)).astype(np.int64))[:-1]
        burstiness = min(max(float(counts.var() / counts.mean()), 1.0), 50.0)
        burstiness = burstiness if burstiness > 1.1 else 1.0
        variation = variation_of(burstiness, service.rate_per_second, service.slo_ms)
        services[name] = replace(service, variation=variation)
    return replace(problem, services=services)


def outcome(planned: Problem, problem: Problem, arrivals: Mapping[str, Floats]) -> Outcome:
    """Plans one problem, and serves the rates of another."""
    plan = solve(planned, SolveBudget(seconds=None, work=WORK))
    attained = {name: served_share(problem, plan, name, times) for name, times in arrivals.items()}
    assert plan.certificate
    return Outcome(plan.certificate.cost.resource, attained)


def judge_equal_cost(problem: Problem, arrivals: Mapping[str, Floats], aware: Outcome) -> Outcome:
    """Returns what is attained by a plan for Poisson arrivals at raised rates that costs as much or a little more."""
    low, high = 1.0, 4.0
    best: Outcome | None = None
    for _ in range(TRIES):
        factor = (low * high) ** 0.5
        services = {
            name: replace(service, rate_per_second=service.rate_per_second * factor)
            for name, service in problem.services.items()
        }
        found = outcome(replace(problem, services=services), problem, arrivals)
        if found.cost >= aware.cost:
            high, best = factor, found
        else:
            low = factor
    return best or found


def served_share(problem: Problem, plan: Plan, name: str, arrivals: Floats) -> float:
    """Returns the share of a service's requests in time, each sent to an instance at random by the planned rates."""
    lines = [instance for instance in plan.instances if instance.service == name]
    if not lines:
        return 0.0
    rates = np.array([line.rate_per_second for line in lines])
    sent = np.random.default_rng(len(arrivals)).choice(len(lines), len(arrivals), p=rates / rates.sum())
    slo_s, margin = problem.services[name].slo_ms / 1000, 1 + problem.policy.exec_margin
    in_time = 0.0
    for place, line in enumerate(lines):
        exec_s = line.exec_ms * margin / 1000
        in_time += requests_in_time(arrivals[sent == place], line.batch, exec_s, line.batch_timeout_ms / 1000, slo_s)
    return in_time / len(arrivals)


@njit("float64(float64[::1], int64, float64, float64, float64)")
def requests_in_time(arrivals: Floats, batch: int, exec_s: float, timeout_s: float, slo_s: float) -> float:
    """Returns how many of these requests a batch server finishes within the SLO."""
    free, first, in_time, count = 0.0, 0, 0.0, arrivals.shape[0]
    while first < count:
        start = arrivals[first] + timeout_s
        if first + batch <= count:
            start = min(start, arrivals[first + batch - 1])
        start = max(start, free)
        free = start + exec_s
        end = first
        while end < min(first + batch, count) and arrivals[end] <= start:
            in_time += free - arrivals[end] <= slo_s * (1 + 1e-9)
            end += 1
        first = max(end, first + 1)
    return in_time
