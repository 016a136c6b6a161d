"""Checks by the product's latency function that instances keep their SLO, and finds their timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from solvers.compiled import njit
from solvers.latency import OutsideTheTable, latency_at, limits, timeout_for
from solvers.latency.kernels import accepted_load
from solvers.planning.judge import Resident
from solvers.planning.problem import Instance, Problem, Service
from solvers.planning.search.arrays import F1, F2, I1
from solvers.planning.search.tables import Floats, Ints

SLACK_SHARE = 1e-9  # of a rate: tolerance for sums of floats


@njit((F2, I1, F1, F1))
def accepted_loads(rows: Floats, batches: Ints, ratios: Floats, into: Floats) -> None:
    """Writes the load that each accepts at its ratio of SLO to exec."""
    for i in range(batches.shape[0]):
        into[i] = accepted_load(rows[batches[i]], ratios[i])


def timeouts(
    percentiles: Sequence[float], batches: Sequence[int], judged_ms: Sequence[float], slos_ms: Sequence[float],
    rates: Sequence[float],
) -> list[float | None]:  # fmt: skip
    """Returns the timeout under which each rate is accepted: 0 if that is enough, None if no timeout is."""
    found: list[float | None] = [0.0] * len(rates)
    whole = np.array(batches, dtype=np.int64)
    exec_ms, rate, slo = (np.array(values, dtype=np.float64) for values in (judged_ms, rates, slos_ms))
    with np.errstate(divide="ignore", invalid="ignore"):
        load, ratio = rate * exec_ms / whole / 1000, slo / exec_ms
    percentile = np.array(percentiles, dtype=np.float64)
    for value in np.unique(percentile):
        at = np.flatnonzero(percentile == value)
        accepted = np.zeros(len(at))
        rows = limits(float(value), set(whole[at].tolist())).prompt
        accepted_loads(rows, whole[at], ratio[at], accepted)
        for index in at[load[at] > accepted * (1 + SLACK_SHARE)]:
            found[index] = timeout_for(
                int(whole[index]), float(exec_ms[index]), float(slo[index]), float(value), float(rate[index])
            )
    return found


def keep(problem: Problem, residents: Sequence[Resident]) -> list[bool]:
    """Tells which residents keep their SLO, as a judge may ask instead of simulating; their exec must be known."""
    margin = 1 + problem.policy.exec_margin
    known = [(r.service, r.instance, r.exec_ms) for r in residents]
    least = timeouts(
        [service.percentile if service else 99.9 for service, _, _ in known],
        [instance.batch for _, instance, _ in known],
        [(exec_ms or 0.0) * margin for _, _, exec_ms in known],
        [service.slo_ms if service else 0.0 for service, _, _ in known],
        [instance.rate_per_second for _, instance, _ in known],
    )
    return [
        _is_wanted(wanted, instance.batch_timeout_ms) or _holds(service, instance, (exec_ms or 0.0) * margin)
        for wanted, (service, instance, exec_ms) in zip(least, known, strict=True)
    ]


def _is_wanted(wanted: float | None, timeout_ms: float) -> bool:
    if wanted is None or (wanted > 0) != (timeout_ms > 0):
        return False
    return abs(wanted - timeout_ms) <= 1e-6 * max(1.0, wanted)


def _holds(service: Service | None, instance: Instance, judged_ms: float) -> bool:
    """Returns whether the SLO holds with another timeout, as from before its rate or its neighbours changed."""
    timeout_ms, rate = instance.batch_timeout_ms, instance.rate_per_second
    if service is None or judged_ms <= 0 or rate <= 0 or not 0 <= timeout_ms <= judged_ms < inf:
        return False
    try:
        latency_ms = latency_at(instance.batch, judged_ms, rate, service.percentile, timeout_ms)
    except (OutsideTheTable, ValueError):
        return False
    return latency_ms <= service.slo_ms * (1 + SLACK_SHARE)
