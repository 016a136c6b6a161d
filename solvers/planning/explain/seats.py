"""Seats for one service in what the others leave: where, in which shape, carrying how much."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from solvers.latency import latency_at, timeout_for
from solvers.planning.explain.free_capacity import FreeCapacity
from solvers.planning.explain.gpu_groups import Place
from solvers.planning.explain.options import SURE, Notes, ServiceTerms, ShapeOptions, options
from solvers.planning.problem import Instance, Service
from solvers.planning.search.realise import even
from solvers.planning.search.tables import SM, Floats, Ints

ENOUGH = 1 - 1e-9  # of a rate
CALL, PICK = 4000, 40  # steps that these take beside looking at shapes
SMS = np.arange(SM)


@dataclass(frozen=True, slots=True)
class Pick:
    """A shape on a GPU."""

    place: Place
    options: ShapeOptions
    row: int
    sm_percent: int

    @property
    def cap(self) -> float:
        return float(self.options.cap[self.row, self.sm_percent])


@dataclass(frozen=True, slots=True)
class FoundSeats:
    """New seats for a service, what they and the instances it has carry, and what all carry together."""

    picks: tuple[Pick, ...]
    rates: tuple[float, ...]  # of the new ones
    own: tuple[float, ...]  # of those it has
    rate_per_second: float


NOTHING = FoundSeats((), (), (), 0.0)


def seats(
    ground: FreeCapacity, terms: ServiceTerms, notes: Notes, own: Sequence[float] = (), whole: bool = False
) -> FoundSeats:
    """As much of the service's rate as can be carried, each new instance on a GPU of its own.

    `own` are the caps of instances that it keeps; `whole` asks for all of its rate or nothing.
    """
    rate, least = terms.service.rate_per_second, terms.service.min_instances
    looked = [options(ground.problem, lot, terms, notes) for lot in ground.lots]
    notes.meter.spend(CALL)
    best = NOTHING
    for densest in (False, True) if _is_limited(terms) else (False,):
        tops = [_tops(one, rate, densest) for one in looked]
        if whole and _too_few(looked, tops, own, rate, least):
            return NOTHING
        taken = _taken(ground, terms, notes, looked, tops, own, densest)
        if len(taken) + len(own) < max(least, 1):
            continue
        loads = even([*own, *(pick.cap for pick in taken)], rate, least)
        if sum(loads) <= best.rate_per_second * (1 + 1e-9) or min(loads) <= 0:
            continue
        best = FoundSeats(tuple(taken), tuple(loads[len(own) :]), tuple(loads[: len(own)]), sum(loads))
        if best.rate_per_second >= rate * ENOUGH:
            break
    return best if best.rate_per_second >= rate * ENOUGH or not whole else NOTHING


@dataclass(frozen=True, slots=True)
class _Tops:
    """The best shape of each spot that has any."""

    spot: Ints
    row: Ints
    sm_percent: Ints
    worth: Floats


def _is_limited(terms: ServiceTerms) -> bool:
    return terms.limit is not None or terms.policy.power_budget_w is not None


def _tops(one: ShapeOptions, rate: float, densest: bool) -> _Tops:
    worth = one.cap / np.maximum(SMS, 1) if densest else np.minimum(one.cap, rate)
    sm = worth.argmax(axis=1)  # the smallest of those that are equal
    most = worth[np.arange(len(sm)), sm] if len(sm) else np.zeros(0)
    order = np.lexsort((sm, -most, one.spot))
    first = order[np.r_[True, one.spot[order][1:] != one.spot[order][:-1]]] if len(order) else order
    return _Tops(one.spot[first], first, sm[first], most[first])


def _too_few(looked: list[ShapeOptions], tops: list[_Tops], own: Sequence[float], rate: float, least: int) -> bool:
    """Whether all spots together, each at its best, do not carry the rate, or are fewer than the instances wanted."""
    most, count = sum(own), len(own)
    for one, top in zip(looked, tops, strict=True):
        many = np.array([len(one.lot.spots[spot].places) for spot in top.spot.tolist()])
        if len(many):
            most += float((one.cap[top.row].max(axis=1) * many).sum())
            count += int(many.sum())
    return most < rate * ENOUGH or count < max(least, 1)


def _taken(
    ground: FreeCapacity,
    terms: ServiceTerms,
    notes: Notes,
    looked: list[ShapeOptions],
    tops: list[_Tops],
    own: Sequence[float],
    densest: bool,
) -> list[Pick]:
    """The best shape of each GPU, the best GPUs first, until the rate is carried."""
    service, limit = terms.service, terms.limit
    rate, least = service.rate_per_second, max(service.min_instances, 1)
    gpus = price = inf
    if limit:
        gpus = inf if limit.gpus is None else limit.gpus * SURE - ground.gpus_taken.get(service.tenant, 0.0)
        if limit.price_per_hour is not None:
            price = limit.price_per_hour * SURE - ground.price_taken.get(service.tenant, 0.0)
    budget = terms.policy.power_budget_w
    watts = inf if budget is None else budget - ground.drawn_w
    cores_used: dict[str, float] = defaultdict(float)
    host_used: dict[str, float] = defaultdict(float)
    caps = sorted(own)
    carried = sum(own)

    def enough() -> bool:
        if len(caps) < least:
            return False
        most = carried if least < 2 else min(carried, 2 * len(caps) * caps[-least])
        return most >= rate * ENOUGH

    def roomy(one: ShapeOptions, row: int, name: str) -> bool:
        demand = one.ways[one.way[row]].profile.demand
        return bool(
            demand.cpu_cores <= ground.cpu_cores[name] - cores_used[name]
            and demand.host_memory_gib <= ground.host_memory_gib[name] - host_used[name]
        )

    def share(sm: int) -> float:
        return 1.0 if service.is_dedicated else sm / 100

    def within(one: ShapeOptions, row: int, sm: int) -> bool:
        node_price = one.lot.price_per_hour[one.spot[row]]
        return bool(
            share(sm) <= gpus and share(sm) * node_price <= price and (budget is None or one.busy_w[row, sm] <= watts)
        )

    chosen: list[Pick] = []
    for number, index in _ranked(looked, tops):
        one, top = looked[number], tops[number]
        spot_number = int(top.spot[index])
        spot = one.lot.spots[spot_number]
        best = (int(top.row[index]), int(top.sm_percent[index]))
        rows = one.rows_of[spot_number]
        if budget is not None and one.least_w[spot_number] > watts:
            continue
        least_share = share(one.least_sm[spot_number])
        if least_share > gpus or least_share * spot.node.price_per_hour > price:
            continue
        for place in spot.places:
            if enough() or gpus < share(1) or watts <= 0:
                return chosen
            name = place[0]
            notes.meter.spend(PICK)
            pick: tuple[int, int] | None = best if within(one, *best) and roomy(one, best[0], name) else None
            if pick is None:
                fit = [row for row in rows.tolist() if roomy(one, row, name)]
                if not fit:
                    continue
                notes.meter.spend(PICK * 5)
                pick = _within(one, np.array(fit), service.is_dedicated, spot.node.price_per_hour,
                               rate, densest, gpus, price, watts)  # fmt: skip
                if pick is None and len(fit) == len(rows):
                    break  # a limit, which is the same for all GPUs of this kind
            if pick is None:
                continue
            row, sm = pick
            chosen.append(Pick(place, one, row, sm))
            cap, demand = float(one.cap[row, sm]), one.ways[one.way[row]].profile.demand
            insort(caps, cap)
            carried += cap
            gpus, price = gpus - share(sm), price - share(sm) * spot.node.price_per_hour
            if budget is not None:
                watts -= float(one.busy_w[row, sm])
            cores_used[name] += demand.cpu_cores
            host_used[name] += demand.host_memory_gib
    return chosen


def _ranked(looked: list[ShapeOptions], tops: list[_Tops]) -> list[tuple[int, int]]:
    """(which options, which spot of theirs): the best first, the cheaper among equals."""
    worth = np.concatenate([top.worth for top in tops])
    price = np.concatenate([one.lot.price_per_hour[top.spot] for one, top in zip(looked, tops, strict=True)])
    number = np.concatenate([np.full(len(top.spot), at) for at, top in enumerate(tops)])
    index = np.concatenate([np.arange(len(top.spot)) for top in tops])
    order = np.lexsort((index, number, price, -worth))
    return list(zip(number[order].tolist(), index[order].tolist(), strict=True))


def _within(
    one: ShapeOptions, rows: Ints, is_dedicated: bool, node_price: float, rate: float, densest: bool,
    gpus: float, price: float, watts: float,
) -> tuple[int, int] | None:  # fmt: skip
    """The best shape of these rows that keeps to the limits."""
    share = np.ones(SM) if is_dedicated else SMS / 100
    inside = (share <= gpus) & (share * node_price <= price)
    if not inside.any():
        return None
    cap = np.where(inside[None, :], one.cap[rows], 0.0)
    if watts < inf:
        cap = np.where(one.busy_w[rows] <= watts, cap, 0.0)
    worth = cap / np.maximum(SMS, 1) if densest else np.minimum(cap, rate)
    most = float(worth.max())
    if not most > 0:
        return None
    at, sm = np.nonzero(worth >= most)
    least = int(np.argmin(sm))
    return int(rows[at[least]]), int(sm[least])


def shares_of(found: FoundSeats, service: Service) -> tuple[float, float]:
    """What the new seats take of a tenant's limits: GPUs, and their price an hour."""
    gpus = price = 0.0
    for pick in found.picks:
        share = 1.0 if service.is_dedicated else pick.sm_percent / 100
        spot = pick.options.lot.spots[int(pick.options.spot[pick.row])]
        gpus, price = gpus + share, price + share * spot.node.price_per_hour
    return gpus, price


def watts_of(found: FoundSeats) -> float:
    """What the new seats draw above idle, in the mean, were they loaded to the full."""
    return sum(float(pick.options.busy_w[pick.row, pick.sm_percent]) for pick in found.picks)


def instances(found: FoundSeats, terms: ServiceTerms) -> tuple[Instance, ...]:
    """What runs on the seats, each in the smallest shape of its kind that carries its load."""
    service, policy = terms.service, terms.policy
    placed = []
    for number, (pick, rate) in enumerate(zip(found.picks, found.rates, strict=True)):
        one, row = pick.options, pick.row
        way, batch_at = one.ways[one.way[row]], one.by[row, pick.sm_percent]
        alike = np.flatnonzero((one.by[row, : pick.sm_percent] == batch_at) & (one.cap[row, : pick.sm_percent] >= rate))
        sm = int(alike[0]) if len(alike) else pick.sm_percent
        batch, exec_ms = int(way.at.batches[batch_at]), float(one.exec_ms[row, sm])
        judged = exec_ms * (1 + policy.exec_margin)
        wait = timeout_for(batch, judged, service.slo_ms, service.percentile, rate)
        assert wait is not None, f"{service.name} at {rate:g}/s on {pick.place} by batch {batch} was accepted"
        placed.append(
            Instance(
                id=f"{service.name}/new-{number + 1}",
                service=service.name,
                node=pick.place[0],
                gpu=pick.place[1],
                variant=way.profile.variant,
                batch=batch,
                batch_timeout_ms=wait,
                sm_percent=sm,
                memory_gib=way.profile.memory_gib[batch],
                clock_mhz=way.clock_mhz,
                rate_per_second=rate,
                exec_ms=exec_ms,
                latency_ms=latency_at(batch, judged, rate, service.percentile, wait),
            )
        )
    return tuple(placed)
