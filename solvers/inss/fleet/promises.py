"""Finds how long a batch may take and what it may carry: by InSS's equation (2), and by the table that judges plans.

Equation (2) is about one task. The slowest is either the first of a batch, which waits for the batch before it and for
the others of its own, or the last of those that arrive while a batch runs. Their number is drawn by Poisson, as InSS
fits arrivals, and the service's percentile of it counts.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, isnan

import numpy as np

from solvers.inss.task_latency import task_latency
from solvers.planning.fleet.grids import RateTerms
from solvers.planning.problem import Policy, Problem, Service

STEPS = 40  # of the bisection
SAFE_SHARE = 1e-6  # of a batch's time
POINTS = 24  # of the curve of usable shares
SHORTEST_SHARE = 0.01  # of the SLO: batches that take less are as usable
ROUNDED_DOWN_SHARE = 0.002  # of a rate, for what lies between two points


def slowest_ms(service: Service, batch: int, exec_ms: float, least_batch: int, policy: Policy) -> float:
    """Returns the latency of the slowest task within the percentile, by equation (2).

    Ours: an instance is never sent more than it may be busy with, and the smallest batch does not wait to be full,
    since gateways send what has come after a timeout.
    """
    from scipy.special import pdtrik  # other planners, which import this package too, need no SciPy

    most_per_ms = policy.utilization * batch / exec_ms
    rate_per_ms = min(service.rate_per_second / 1000, most_per_ms)
    queued = pdtrik(service.percentile / 100, rate_per_ms * exec_ms)
    last = 0 if isnan(queued) else ceil(queued - 1e-9)
    behind = task_latency(last, batch, 0.0, exec_ms, rate_per_ms) if last + 1 >= batch else 0.0
    first = task_latency(0, 1 if batch == least_batch else batch, exec_ms, exec_ms, rate_per_ms)
    return max(first, behind)


def most_exec_ms(problem: Problem, service: Service, batch: int, least_batch: int) -> float:
    """Returns the longest time of a batch, neighbours included, with which equation (2) keeps the SLO (1c)."""
    policy = problem.policy
    return _longest(
        service.slo_ms, service.percentile, service.rate_per_second, batch, least_batch, policy.utilization
    ) / (1 + policy.exec_margin)


@lru_cache(maxsize=65536)
def _longest(
    slo_ms: float, percentile: float, rate: float, batch: int, least_batch: int, utilization: float
) -> float:  # fmt: skip
    service = Service("", "", "", (), slo_ms, percentile, rate)
    policy = Policy(utilization=utilization)
    low, high = 0.0, slo_ms
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if slowest_ms(service, batch, middle, least_batch, policy) <= slo_ms else (low, middle)
        )
    return low * (1 - SAFE_SHARE)


def usable(problem: Problem, service: Service, batch: int) -> tuple[tuple[float, float], ...]:
    """Returns over the time of a batch the share of its throughput that may be used within the SLO."""
    return _usable(RateTerms.of(problem.policy, service), batch)


@lru_cache(maxsize=4096)
def _usable(terms: RateTerms, batch: int) -> tuple[tuple[float, float], ...]:
    return tuple(
        (exec_ms, terms.accepted_rate(batch, exec_ms) * exec_ms / batch / 1000 * (1 - ROUNDED_DOWN_SHARE))
        for exec_ms in np.geomspace(SHORTEST_SHARE * terms.slo_ms, terms.slo_ms, POINTS).tolist()
    )
