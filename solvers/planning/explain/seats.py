"""Seats for one service in what the others leave: where, in which shape, carrying how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from solvers.latency import busy_fraction, latency_at, limits, timeout_for
from solvers.planning.explain.ground import Ground, Measured, Measurements, Spot, outside_of
from solvers.planning.explain.kernels import caps
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Instance, Problem, Profile, Service
from solvers.planning.realise import even
from solvers.planning.tables import SM, everywhere, inside

SURE = 1 - 1e-9
ENOUGH = 1 - 1e-9  # of a rate


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instance may carry on one GPU in one shape."""

    cap: float
    sm_percent: int
    batch: int
    profile: Profile
    clock_mhz: float
    exec_ms: float


@dataclass(frozen=True, slots=True)
class Found:
    """New instances for a service, what those it has carry now, and what all carry together."""

    instances: tuple[Instance, ...]
    own: tuple[float, ...]
    rate_per_second: float


NOTHING = Found((), (), 0.0)


def seats(ground: Ground, service: Service, own: Sequence[float] = ()) -> Found:
    """As much of the service's rate as can be carried, each new instance on a GPU of its own.

    `own` are the caps of instances that it keeps.
    """
    rate, least = service.rate_per_second, service.min_instances
    options = [(spot, found) for spot in ground.spots if (found := shapes(ground.problem, spot, service, ground.memo))]
    limited = ground.problem.limits.get(service.tenant) is not None
    best = NOTHING
    for densest in (False, True) if limited or ground.problem.policy.power_budget_w is not None else (False,):
        taken = _taken(ground, service, options, own, densest)
        if len(taken) + len(own) < max(least, 1):
            continue
        loads = even([*own, *(shape.cap for _, shape, _ in taken)], rate, least)
        if sum(loads) <= best.rate_per_second * (1 + 1e-9) or min(loads) <= 0:
            continue
        placed = tuple(
            _instance(ground.problem, service, number, spot, _least(shape, mine, load), load)
            for number, ((spot, shape, mine), load) in enumerate(zip(taken, loads[len(own) :], strict=True))
        )
        best = Found(placed, tuple(loads[: len(own)]), sum(loads))
    return best


def _taken(
    ground: Ground, service: Service, options: list[tuple[Spot, list[Shape]]], own: Sequence[float], densest: bool
) -> list[tuple[Spot, Shape, list[Shape]]]:
    """The best shape of each GPU, the best GPUs first, until the rate is carried."""
    rate, least = service.rate_per_second, service.min_instances
    limit = ground.problem.limits.get(service.tenant)
    gpus = price = inf
    if limit:
        gpus = inf if limit.gpus is None else limit.gpus * SURE - ground.gpus_taken.get(service.tenant, 0.0)
        if limit.price_per_hour is not None:
            price = limit.price_per_hour * SURE - ground.price_taken.get(service.tenant, 0.0)
    budget = ground.problem.policy.power_budget_w
    watts = inf if budget is None else budget - ground.drawn_w
    cpu: dict[str, float] = dict(ground.cpu_cores)
    host: dict[str, float] = dict(ground.host_memory_gib)

    def worth(shape: Shape) -> tuple[float, float]:
        return (shape.cap / shape.sm_percent if densest else min(shape.cap, rate), -shape.sm_percent)

    def share(shape: Shape) -> float:
        return 1.0 if service.is_dedicated else shape.sm_percent / 100

    ranked = sorted(
        ((max(mine, key=worth), spot, mine) for spot, mine in options),
        key=lambda one: (worth(one[0])[0] * -1, one[1].node.price_per_hour, one[1].place),
    )
    chosen: list[tuple[Spot, Shape, list[Shape]]] = []
    for _, spot, mine in ranked:
        so_far = [*own, *(one.cap for _, one, _ in chosen)]
        if len(so_far) >= max(least, 1) and sum(even(so_far, rate, least)) >= rate * ENOUGH:
            break
        name = spot.node.name
        fits = [
            shape for shape in mine
            if share(shape) <= gpus and share(shape) * spot.node.price_per_hour <= price
            and shape.profile.demand.cpu_cores <= cpu[name]
            and shape.profile.demand.host_memory_gib <= host[name] and busy_w(spot, shape) <= watts
        ]  # fmt: skip
        if not fits:
            continue
        shape = max(fits, key=worth)
        chosen.append((spot, shape, mine))
        gpus, price = gpus - share(shape), price - share(shape) * spot.node.price_per_hour
        watts -= busy_w(spot, shape)
        cpu[name] -= shape.profile.demand.cpu_cores
        host[name] -= shape.profile.demand.host_memory_gib
    return chosen


def busy_w(spot: Spot, shape: Shape) -> float:
    """Watts above idle at all it may carry, in the mean."""
    demand = shape.profile.demand
    ratio = shape.clock_mhz / spot.gpu_type.top_clock_mhz
    load = min(shape.cap * shape.exec_ms / shape.batch / 1000, 1.0)
    watts: float = value_at(demand.power_w, shape.sm_percent) * ratio**demand.power_exponent
    return watts * busy_fraction(shape.batch, load)


def _least(shape: Shape, mine: list[Shape], load: float) -> Shape:
    """The smallest SM% of the same profile, clock and batch that carries the load."""
    alike = [
        one for one in mine
        if one.profile is shape.profile and one.clock_mhz == shape.clock_mhz and one.batch == shape.batch
        and one.cap >= load and one.sm_percent <= shape.sm_percent
    ]  # fmt: skip
    return min(alike, key=lambda one: one.sm_percent, default=shape)


def shapes(problem: Problem, spot: Spot, service: Service, memo: Measurements) -> list[Shape]:
    """Every SM% at which an instance carries anything on this GPU, with the best batch."""
    policy = problem.policy
    if (
        (service.gpu_types is not None and spot.gpu_type.name not in service.gpu_types)
        or spot.clients < 1
        or spot.is_dedicated
        or (service.is_dedicated and not spot.is_empty)
        or spot.models.get(service.model, 0) >= policy.same_model_per_gpu
    ):
        return []
    found = []
    share_pressure = policy.share_pressure if policy.pricing == "share" else 0.0
    for profile in admitted(problem, spot, service):
        at = memo.get(profile.key)
        if at is None:
            at = memo[profile.key] = measured(profile)
        rows = np.ascontiguousarray(limits(service.percentile).loads[at.batches])
        demand = profile.demand
        for clock in spot.clocks_mhz:
            ratio = spot.gpu_type.top_clock_mhz / clock
            cap, by = np.zeros(SM), np.zeros(SM, dtype=np.int64)
            slower = ratio**demand.clock_exponent
            caps(
                at.exec_ms, at.memory_gib, at.batches, rows, at.pressure, at.power_w,
                demand.sensitivity, slower, ratio**-demand.power_exponent, spot.pressure, spot.sm_percent,
                spot.memory_gib, spot.gpu_type.max_w - spot.gpu_type.idle_w - spot.busy_w, service.slo_ms,
                1 + policy.exec_margin, policy.utilization, share_pressure, spot.neighbours, cap, by,
            )  # fmt: skip
            for sm in np.flatnonzero(cap > 0).tolist():
                outside = outside_of(policy, spot.sm_percent - sm)
                exec_ms = at.exec_ms[by[sm], sm] * slower * (1 + demand.sensitivity * spot.pressure)
                exec_ms *= 1 + demand.sensitivity * outside
                found.append(Shape(float(cap[sm]) * SURE, sm, int(at.batches[by[sm]]), profile, clock, float(exec_ms)))
    return found


def admitted(problem: Problem, spot: Spot, service: Service) -> Iterator[Profile]:
    """Profiles by which the service may run there."""
    templates = {variant.name: variant.template for variant in problem.models[service.model]}
    for variant in service.variants:
        profile = problem.profiles.get((service.model, variant, spot.gpu_type.name))
        template = templates.get(variant)
        offered = spot.node.templates
        if profile and (offered is None or template is None or template in offered):
            yield profile


def measured(profile: Profile) -> Measured:
    """Every batch at every SM%."""
    batches = sorted(profile.latency_ms)
    return Measured(
        np.array(batches, dtype=np.int64),
        np.ascontiguousarray([inside(profile.latency_ms[batch]) for batch in batches]),
        np.array([profile.memory_gib[batch] for batch in batches], dtype=np.float64),
        everywhere([profile.demand.pressure])[0].copy(),
        everywhere([profile.demand.power_w])[0].copy(),
    )


def _instance(problem: Problem, service: Service, number: int, spot: Spot, shape: Shape, rate: float) -> Instance:
    judged = shape.exec_ms * (1 + problem.policy.exec_margin)
    wait = timeout_for(shape.batch, judged, service.slo_ms, service.percentile, rate)
    assert wait is not None, f"{service.name} at {rate:g}/s on {spot.place} by batch {shape.batch} was accepted"
    return Instance(
        id=f"{service.name}/new-{number + 1}",
        service=service.name,
        node=spot.place[0],
        gpu=spot.place[1],
        variant=shape.profile.variant,
        batch=shape.batch,
        batch_timeout_ms=wait,
        sm_percent=shape.sm_percent,
        memory_gib=shape.profile.memory_gib[shape.batch],
        clock_mhz=shape.clock_mhz,
        rate_per_second=rate,
        exec_ms=shape.exec_ms,
        latency_ms=latency_at(shape.batch, judged, rate, service.percentile, wait),
    )
