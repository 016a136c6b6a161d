"""The first rung: other batches and timeouts, and the rate spread again. Nothing restarts (InSS, case 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.control.fast.neighbourhood import Neighbourhood
from app.control.fast.shapes import batch_capacity, best_batch, fitting_batches
from solvers.latency import latency_at
from solvers.planning.fleet.grids import BatchRate
from solvers.planning.judge.readings import JudgedGpu, Resident
from solvers.planning.judge.services import AVAILABILITY_RULES
from solvers.planning.problem import Instance, Policy, Problem
from solvers.planning.replan.rates import share_total, spread_evenly
from solvers.planning.search.promise import timeouts

ENOUGH_SHARE = 1 - 1e-7  # of a rate
SAME_SHARE = 1e-9
LEAST_GAIN_FACTOR = 1.01  # of what is carried: less is not worth a step


@dataclass(frozen=True, slots=True)
class SeatedInstance:
    """An instance on its GPU, and the shape that it is to have."""

    resident: Resident
    shape: BatchRate


def seats_of(gpus: Mapping[tuple[str, int], JudgedGpu], service: str, policy: Policy) -> list[SeatedInstance] | None:
    """Returns the service's instances as they are; None if any could not keep its SLO at any rate."""
    found = []
    for _, gpu in sorted(gpus.items()):
        for resident in gpu.residents:
            if resident.instance.service == service:
                line = resident.instance
                shape = batch_capacity(resident, policy, line.batch) or best_batch(resident, policy, line.memory_gib)
                if shape is None:
                    return None
                found.append(SeatedInstance(resident, shape))
    return found


def capacity(seats: Sequence[SeatedInstance]) -> float:
    """Returns the rate that the instances carry together."""
    return sum(seat.shape.rate_per_second for seat in seats)


def enlarge_batches(seats: Sequence[SeatedInstance], policy: Policy, target: float) -> list[SeatedInstance]:
    """Gives as few instances as possible another batch to reach the target: the largest gain comes first.

    An instance gets the smallest batch that suffices, which answers sooner; else the batch that carries most.
    """
    found = list(seats)
    tops = [best_batch(seat.resident, policy, seat.resident.instance.memory_gib) or seat.shape for seat in seats]
    gains = [top.rate_per_second - seat.shape.rate_per_second for top, seat in zip(tops, seats, strict=True)]
    short = target - capacity(seats)
    for k in sorted(range(len(seats)), key=lambda k: (-gains[k], seats[k].resident.instance.id)):
        if short <= target * (1 - ENOUGH_SHARE) or gains[k] <= 0:
            break
        seat, needed = seats[k], seats[k].shape.rate_per_second + short
        enough = (
            batch
            for batch in fitting_batches(seat.resident, policy, seat.resident.instance.memory_gib)
            if batch.rate_per_second >= needed
        )
        found[k] = replace(seat, shape=next(enough, tops[k]))
        short -= found[k].shape.rate_per_second - seat.shape.rate_per_second
    return found


def spread_rate(seats: Sequence[SeatedInstance], total: float, least: int) -> list[float]:
    """Spreads a rate in proportion to what each may carry, so that all are as far from their limits.

    Where the `least` largest would carry less than half an even share, as even as their limits let them be.
    """
    caps = np.array([seat.shape.rate_per_second for seat in seats])
    total = min(total, float(caps.sum()))
    rates = caps * (total / float(caps.sum()))
    most = int(np.argmax(caps))
    rates[most] = min(rates[most] + total - rates.sum(), caps[most])
    if least > 1 and len(caps) >= least and np.sort(rates)[-least] < total / len(caps) / 2:
        rates = share_total(rates, caps, total, least)
        if np.sort(rates)[-least] < rates.sum() / len(rates) / 2:
            rates = spread_evenly(caps, total, least)
    return [float(rate) for rate in rates]


def apply_shapes(problem: Problem, seats: Sequence[SeatedInstance], rates: Sequence[float]) -> list[Instance]:
    """Returns the instances in their new shapes: batch, timeout, rate, and what that predicts."""
    margin = 1 + problem.policy.exec_margin
    services = [problem.services[seat.resident.instance.service] for seat in seats]
    shapes = [seat.shape for seat in seats]
    waits = timeouts(services, [shape.batch for shape in shapes], [shape.exec_ms * margin for shape in shapes], rates)
    found = []
    for seat, service, rate, wait in zip(seats, services, rates, waits, strict=True):
        line, shape, wait_ms = seat.resident.instance, seat.shape, wait or 0.0
        if abs(wait_ms - line.batch_timeout_ms) <= SAME_SHARE * max(1.0, wait_ms):
            wait_ms = line.batch_timeout_ms
        judged = shape.exec_ms * margin
        found.append(
            replace(
                line,
                batch=shape.batch,
                batch_timeout_ms=wait_ms,
                rate_per_second=rate,
                memory_gib=max(line.memory_gib, shape.memory_gib),
                exec_ms=shape.exec_ms,
                latency_ms=float(
                    latency_at(shape.batch, judged, rate, service.percentile, min(wait_ms, judged), service.variation)
                ),
            )
        )
    return found


def retune(area: Neighbourhood, service: str, target: float, partly: bool = False) -> Neighbourhood | None:
    """Makes the service carry `target` by its batches alone; None if they do not suffice, or the judge objects.

    `partly`: the service then carries as much of it as they give, if that is worth a step.
    """
    policy = area.problem.policy
    seats = seats_of(area.gpus(), service, policy)
    if not seats:
        return None
    seats = enlarge_batches(seats, policy, target)
    return share_rate(area, service, seats, [], target, partly)


def share_rate(
    area: Neighbourhood,
    service: str,
    seats: Sequence[SeatedInstance],
    others: Sequence[SeatedInstance],
    target: float,
    partly: bool,
) -> Neighbourhood | None:
    """Spreads the service's rate over its instances in these shapes; `others` keep their shapes and rates.

    Returns None if the shapes do not carry the rate or, with `partly`, if they carry hardly more than before.
    """
    total = min(target, capacity(seats))
    carried = sum(line.rate_per_second for line in area.plan.instances if line.service == service)
    if total <= carried * LEAST_GAIN_FACTOR if partly else total < target * ENOUGH_SHARE:
        return None
    problem = area.problem
    lines = apply_shapes(problem, seats, spread_rate(seats, total, problem.services[service].min_instances))
    lines += apply_shapes(problem, others, [seat.resident.instance.rate_per_second for seat in others])
    return accept(area, area.becoming(lines, {service: target}))


def accept(before: Neighbourhood, after: Neighbourhood) -> Neighbourhood | None:
    """Returns the area after a change, if the judge finds no violation that was not there before."""
    wrong = {(violation.where, violation.rule) for violation in before.verdict.violations}
    is_worse = any(
        (violation.where, violation.rule) not in wrong and violation.rule not in AVAILABILITY_RULES
        for violation in after.verdict.violations
    )
    return None if is_worse else after
