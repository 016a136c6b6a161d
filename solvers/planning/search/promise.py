"""Checks by the product's latency function that instances keep their SLO, and finds their timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, nan

import numpy as np
from numpy.typing import NDArray

from solvers.latency import OutsideTheTable, latency_at, limits, patient_timeouts, timeout_for
from solvers.planning.fleet.grids import Floats, Ints, accepted_loads
from solvers.planning.judge import Resident
from solvers.planning.problem import Instance, Problem, Service

SLACK_SHARE = 1e-9  # of a rate: tolerance for sums of floats
FEW_LINES = 10  # so many are looked up sooner one by one


def timeouts(
    services: Sequence[Service], batches: Sequence[int], judged_ms: Sequence[float] | Floats, rates: Sequence[float]
) -> list[float | None]:
    """Returns the timeout under which each rate is accepted: 0 if that is enough, None if no timeout is."""
    promises = [(service.percentile, service.variation) for service in services]
    found = _timeouts(promises, batches, judged_ms, [service.slo_ms for service in services], rates).tolist()
    return [None if isnan(timeout) else timeout for timeout in found]


def _timeouts(
    promises: Sequence[tuple[float, float]], batches: Sequence[int], judged_ms: Sequence[float] | Floats,
    slos_ms: Sequence[float], rates: Sequence[float],
) -> Floats:  # fmt: skip
    """Returns what `timeout_for` finds for each percentile and variation, with NaN where no timeout is enough."""
    found = np.zeros(len(rates))
    whole = np.array(batches, dtype=np.int64)
    exec_ms, rate, slo = (np.array(values, dtype=np.float64) for values in (judged_ms, rates, slos_ms))
    with np.errstate(divide="ignore", invalid="ignore"):
        load, ratio = rate * exec_ms / whole / 1000, slo / exec_ms
    number = {promise: place for place, promise in enumerate(sorted(set(promises)))}
    of = np.array([number[promise] for promise in promises], dtype=np.int64)
    for (percentile, variation), place in number.items():
        at = np.flatnonzero(of == place)
        table = limits(percentile, set(whole[at].tolist()), variation)
        late = at[load[at] > _find_accepted(table.prompt, whole[at], ratio[at]) * (1 + SLACK_SHARE)]
        if len(late) <= FEW_LINES:
            for index in late:
                line = (int(whole[index]), float(exec_ms[index]), float(slo[index]), percentile, float(rate[index]))
                timeout = timeout_for(*line, variation)
                found[index] = nan if timeout is None else timeout
        else:
            accepted = _find_accepted(table.loads, whole[late], ratio[late])
            found[late] = patient_timeouts(whole[late], exec_ms[late], slo[late], rate[late], accepted)
    return found


def _find_accepted(rows: Floats, batches: Ints, ratios: Floats) -> Floats:
    accepted = np.zeros(len(batches))
    accepted_loads(rows, batches, ratios, accepted)
    return accepted


def keep(problem: Problem, residents: Sequence[Resident]) -> list[bool]:
    """Tells which residents keep their SLO, as a judge may ask instead of simulating; their exec must be known.

    Of a language model the tokens count, whose instance has no exec.
    """
    if any(line.service and line.service.tokens for line in residents):
        return _keep_tokens(problem, residents)
    margin = 1 + problem.policy.exec_margin
    judged_ms = [(resident.exec_ms or 0.0) * margin for resident in residents]
    lines = [resident.instance for resident in residents]
    services = [resident.service for resident in residents]
    wanted = _timeouts(
        [(service.percentile, service.variation) if service else (99.9, 0.0) for service in services],
        [line.batch for line in lines],
        judged_ms,
        [service.slo_ms if service else 0.0 for service in services],
        [line.rate_per_second for line in lines],
    )
    stated = np.array([line.batch_timeout_ms for line in lines], dtype=np.float64)
    kept: list[bool] = _are_wanted(wanted, stated).tolist()
    for other in (index for index, is_kept in enumerate(kept) if not is_kept):
        kept[other] = _holds(services[other], lines[other], judged_ms[other])
    return kept


def _keep_tokens(problem: Problem, residents: Sequence[Resident]) -> list[bool]:
    from solvers.planning.fleet.token_shapes import keeps_tokens  # compiled, and of language models alone

    others = [line for line in residents if not (line.service and line.service.tokens)]
    kept = iter(keep(problem, others))
    return [
        keeps_tokens(problem, line.service, line.instance) if line.service and line.service.tokens else next(kept)
        for line in residents
    ]


def _are_wanted(wanted: Floats, stated: Floats) -> NDArray[np.bool_]:
    """Returns whether each stated timeout is the wanted one; NaN, where no timeout is enough, is none."""
    with np.errstate(invalid="ignore"):
        is_close = np.abs(wanted - stated) <= 1e-6 * np.maximum(1.0, wanted)
    are_wanted: NDArray[np.bool_] = is_close & ((wanted > 0) == (stated > 0))
    return are_wanted


def _holds(service: Service | None, instance: Instance, judged_ms: float) -> bool:
    """Returns whether the SLO holds with another timeout, as from before its rate or its neighbours changed."""
    timeout_ms, rate = instance.batch_timeout_ms, instance.rate_per_second
    if service is None or judged_ms <= 0 or rate <= 0 or not 0 <= timeout_ms <= judged_ms < inf:
        return False
    if service.variation > 0 and timeout_ms > 0:  # what a timeout does among bursts is not known
        return False
    try:
        latency_ms = latency_at(instance.batch, judged_ms, rate, service.percentile, timeout_ms, service.variation)
    except (OutsideTheTable, ValueError):
        return False
    return latency_ms <= service.slo_ms * (1 + SLACK_SHARE)
