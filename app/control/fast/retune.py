"""The first rung: other batches, other timeouts, and the rate spread anew. Nothing restarts (InSS, case 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.control.fast.neighbourhood import Neighbourhood
from app.control.fast.shapes import BatchCapacity, batch_capacity, best_batch, fitting_batches
from solvers.latency import latency_at
from solvers.planning.judge.readings import JudgedGpu, Resident
from solvers.planning.problem import Instance, Policy, Problem
from solvers.planning.replan.rates import even, shared
from solvers.planning.search.promise import timeouts

ENOUGH = 1 - 1e-7  # of a rate
SAME = 1e-9
GAIN = 1.01  # less is not worth a step


@dataclass(frozen=True, slots=True)
class SeatedInstance:
    """An instance where it stands, and the shape in which it shall go on."""

    resident: Resident
    shape: BatchCapacity


def seats_of(gpus: Mapping[tuple[str, int], JudgedGpu], service: str, policy: Policy) -> list[SeatedInstance] | None:
    """The service's instances as they are; None where one of them could not keep its promise at any rate."""
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
    """What they carry together."""
    return sum(seat.shape.rate_per_second for seat in seats)


def enlarge_batches(seats: Sequence[SeatedInstance], policy: Policy, target: float) -> list[SeatedInstance]:
    """The same with other batches where the target needs them, as few as possible: who gains most is changed first.

    The batch an instance gets is the smallest that will do, for it answers sooner; else the one that carries most.
    """
    found = list(seats)
    tops = [best_batch(seat.resident, policy, seat.resident.instance.memory_gib) or seat.shape for seat in seats]
    gains = [top.rate_per_second - seat.shape.rate_per_second for top, seat in zip(tops, seats, strict=True)]
    short = target - capacity(seats)
    for k in sorted(range(len(seats)), key=lambda k: (-gains[k], seats[k].resident.instance.id)):
        if short <= target * (1 - ENOUGH) or gains[k] <= 0:
            break
        seat, needed = seats[k], seats[k].shape.rate_per_second + short
        enough = (
            one
            for one in fitting_batches(seat.resident, policy, seat.resident.instance.memory_gib)
            if one.rate_per_second >= needed
        )
        found[k] = replace(seat, shape=next(enough, tops[k]))
        short -= found[k].shape.rate_per_second - seat.shape.rate_per_second
    return found


def spread_rate(seats: Sequence[SeatedInstance], total: float, least: int) -> list[float]:
    """Each in proportion to what it may carry, so that all are as far from their limits; `total` is at most that.

    Where the `least` largest would carry less than half an even share, as even as their limits let them be.
    """
    caps = np.array([seat.shape.rate_per_second for seat in seats])
    total = min(total, float(caps.sum()))
    rates = caps * (total / float(caps.sum()))
    most = int(np.argmax(caps))
    rates[most] = min(rates[most] + total - rates.sum(), caps[most])
    if least > 1 and len(caps) >= least and np.sort(rates)[-least] < total / len(caps) / 2:
        rates = shared(rates, caps, total, least)
        if np.sort(rates)[-least] < rates.sum() / len(rates) / 2:
            rates = even(caps, total, least)
    return [float(rate) for rate in rates]


def apply_shapes(problem: Problem, seats: Sequence[SeatedInstance], rates: Sequence[float]) -> list[Instance]:
    """The instances as they shall be: batch, timeout, rate, and what that predicts."""
    margin = 1 + problem.policy.exec_margin
    services = [problem.services[seat.resident.instance.service] for seat in seats]
    shapes = [seat.shape for seat in seats]
    waits = timeouts(
        [service.percentile for service in services], [shape.batch for shape in shapes],
        [shape.exec_ms * margin for shape in shapes], [service.slo_ms for service in services], rates,
    )  # fmt: skip
    found = []
    for seat, service, rate, wait in zip(seats, services, rates, waits, strict=True):
        line, shape, wait_ms = seat.resident.instance, seat.shape, wait or 0.0
        if abs(wait_ms - line.batch_timeout_ms) <= SAME * max(1.0, wait_ms):
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
                latency_ms=float(latency_at(shape.batch, judged, rate, service.percentile, min(wait_ms, judged))),
            )
        )
    return found


def retune(area: Neighbourhood, service: str, target: float, partly: bool = False) -> Neighbourhood | None:
    """The service carrying `target` by its batches alone; None where they do not suffice, or the judge objects.

    `partly`: then as much of it as they give, if that is worth a step.
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
    """The area with the service's rate spread over its instances in these shapes; `others` keep theirs and their rates.

    None where the shapes do not carry the rate, or, `partly`, hardly more than is carried already.
    """
    total = min(target, capacity(seats))
    carried = sum(line.rate_per_second for line in area.plan.instances if line.service == service)
    if total <= carried * GAIN if partly else total < target * ENOUGH:
        return None
    problem = area.problem
    lines = apply_shapes(problem, seats, spread_rate(seats, total, problem.services[service].min_instances))
    lines += apply_shapes(problem, others, [seat.resident.instance.rate_per_second for seat in others])
    return accept(area, area.becoming(lines, {service: target}))


def accept(before: Neighbourhood, after: Neighbourhood) -> Neighbourhood | None:
    """The area after a change, if the judge finds nothing wrong that was not wrong before."""
    wrong = {(one.where, one.rule) for one in before.verdict.violations}
    found = [one for one in after.verdict.violations if (one.where, one.rule) not in wrong]
    return None if found else after
