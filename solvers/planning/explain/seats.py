"""Finds seats for a service in what the others leave: on which GPUs, in which shapes, at which rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.latency import latency_at, timeout_for
from solvers.planning.explain.free_capacity import FreeCapacity
from solvers.planning.explain.options import Notes, ServiceTerms, ShapeOptions, options
from solvers.planning.explain.remaining import ENOUGH_SHARE, CarriedRate, RemainingLimits, ShapeWorth
from solvers.planning.grids import Floats, Ints
from solvers.planning.problem import Instance, Place, Service
from solvers.planning.search.realise import even

CALL_STEPS, PICK_STEPS = 4000, 40  # besides those of looking at shapes


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
    """New seats for a service, the rates of these and of the instances it has, and their sum."""

    picks: tuple[Pick, ...]
    rates: tuple[float, ...]  # of the new ones
    own: tuple[float, ...]  # of those it has
    rate_per_second: float


NOTHING = FoundSeats((), (), (), 0.0)


def seats(
    capacity: FreeCapacity, terms: ServiceTerms, notes: Notes, own: Sequence[float] = (), whole: bool = False
) -> FoundSeats:
    """Finds seats for as much of the service's rate as can be carried, each new instance on a GPU of its own.

    `own` are the caps of instances that it keeps; `whole` asks for all of its rate or nothing.
    """
    rate, least = terms.service.rate_per_second, terms.service.min_instances
    looked = [options(capacity.problem, group, terms, notes) for group in capacity.groups]
    notes.meter.spend(CALL_STEPS)
    best = NOTHING
    for is_densest in (False, True) if _is_limited(terms) else (False,):
        worth = ShapeWorth(rate, is_densest)
        tops = [_tops(shapes, worth) for shapes in looked]
        if whole and _too_few(looked, tops, own, rate, least):
            return NOTHING
        picks = _picked(capacity, terms, notes, looked, tops, own, worth)
        if len(picks) + len(own) < max(least, 1):
            continue
        loads = even([*own, *(pick.cap for pick in picks)], rate, least)
        if sum(loads) <= best.rate_per_second * (1 + 1e-9) or min(loads) <= 0:
            continue
        best = FoundSeats(tuple(picks), tuple(loads[len(own) :]), tuple(loads[: len(own)]), sum(loads))
        if best.rate_per_second >= rate * ENOUGH_SHARE:
            break
    return best if best.rate_per_second >= rate * ENOUGH_SHARE or not whole else NOTHING


@dataclass(frozen=True, slots=True)
class _Tops:
    """The best shape of each GPU that has any."""

    gpu: Ints
    row: Ints
    sm_percent: Ints
    worth: Floats


def _is_limited(terms: ServiceTerms) -> bool:
    return terms.limit is not None or terms.policy.power_budget_w is not None


def _tops(shapes: ShapeOptions, worth: ShapeWorth) -> _Tops:
    values = worth.of(shapes.cap)
    sm = values.argmax(axis=1)  # the smallest of those that are equal
    most = values[np.arange(len(sm)), sm] if len(sm) else np.zeros(0)
    order = np.lexsort((sm, -most, shapes.gpu))
    first = order[np.r_[True, shapes.gpu[order][1:] != shapes.gpu[order][:-1]]] if len(order) else order
    return _Tops(shapes.gpu[first], first, sm[first], most[first])


def _too_few(looked: list[ShapeOptions], tops: list[_Tops], own: Sequence[float], rate: float, least: int) -> bool:
    """Returns whether all GPUs, each at its best, cannot carry the rate or are too few for the instances wanted."""
    most, count = sum(own), len(own)
    for shapes, top in zip(looked, tops, strict=True):
        many = np.array([len(shapes.group.gpus[gpu].places) for gpu in top.gpu.tolist()])
        if len(many):
            most += float((shapes.cap[top.row].max(axis=1) * many).sum())
            count += int(many.sum())
    return most < rate * ENOUGH_SHARE or count < max(least, 1)


def _picked(
    capacity: FreeCapacity,
    terms: ServiceTerms,
    notes: Notes,
    looked: list[ShapeOptions],
    tops: list[_Tops],
    own: Sequence[float],
    worth: ShapeWorth,
) -> list[Pick]:
    """Picks the best shape of each GPU, the best GPUs first, until the rate is carried."""
    limits, carried = RemainingLimits.after(capacity, terms), CarriedRate.by(own, terms)
    picks: list[Pick] = []
    for number, index in _ranked(looked, tops):
        shapes, top = looked[number], tops[number]
        gpu = int(top.gpu[index])
        if not limits.admits(shapes, gpu):
            continue
        best = (int(top.row[index]), int(top.sm_percent[index]))
        for place in shapes.group.gpus[gpu].places:
            if carried.is_enough() or limits.is_used_up():
                return picks
            notes.meter.spend(PICK_STEPS)
            node = place[0]
            shape: tuple[int, int] | None = best
            if not (limits.allows(shapes, *best) and limits.has_room(node, shapes, best[0])):
                rows = shapes.rows_of[gpu].tolist()
                fitting = [row for row in rows if limits.has_room(node, shapes, row)]
                if not fitting:
                    continue
                notes.meter.spend(PICK_STEPS * 5)
                price = shapes.group.gpus[gpu].node.price_per_hour
                shape = limits.best_of(shapes, fitting, price, worth)
                if shape is None and len(fitting) == len(rows):
                    break  # a limit, which is the same for all GPUs of this kind
            if shape is None:
                continue
            picks.append(Pick(place, shapes, *shape))
            carried.add(picks[-1].cap)
            limits.take(node, shapes, *shape)
    return picks


def _ranked(looked: list[ShapeOptions], tops: list[_Tops]) -> list[tuple[int, int]]:
    """Returns (number of the options, index of their GPU), the best first, the cheaper among equals."""
    worth = np.concatenate([top.worth for top in tops])
    price = np.concatenate([shapes.group.price_per_hour[top.gpu] for shapes, top in zip(looked, tops, strict=True)])
    number = np.concatenate([np.full(len(top.gpu), at) for at, top in enumerate(tops)])
    index = np.concatenate([np.arange(len(top.gpu)) for top in tops])
    order = np.lexsort((index, number, price, -worth))
    return list(zip(number[order].tolist(), index[order].tolist(), strict=True))


def shares_of(found: FoundSeats, service: Service) -> tuple[float, float]:
    """Returns the GPUs that the new seats take of a tenant's limits, and their price an hour."""
    gpus = price = 0.0
    for pick in found.picks:
        share = 1.0 if service.is_dedicated else pick.sm_percent / 100
        gpu = pick.options.group.gpus[int(pick.options.gpu[pick.row])]
        gpus, price = gpus + share, price + share * gpu.node.price_per_hour
    return gpus, price


def watts_of(found: FoundSeats) -> float:
    """Returns the mean watts above idle that the new seats draw at full load."""
    return sum(float(pick.options.busy_w[pick.row, pick.sm_percent]) for pick in found.picks)


def instances(found: FoundSeats, terms: ServiceTerms) -> tuple[Instance, ...]:
    """Makes the instances of the new seats, each in the smallest shape of its kind that carries its load."""
    service, policy = terms.service, terms.policy
    placed = []
    for number, (pick, rate) in enumerate(zip(found.picks, found.rates, strict=True)):
        shapes, row, most = pick.options, pick.row, pick.sm_percent
        way, batch_at = shapes.ways[shapes.way[row]], shapes.by[row, most]
        alike = np.flatnonzero((shapes.by[row, :most] == batch_at) & (shapes.cap[row, :most] >= rate))
        sm = int(alike[0]) if len(alike) else most
        batch, exec_ms = int(way.at.batches[batch_at]), float(shapes.exec_ms[row, sm])
        judged = exec_ms * (1 + policy.exec_margin)
        wait = timeout_for(batch, judged, service.slo_ms, service.percentile, rate, service.variation)
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
                latency_ms=latency_at(batch, judged, rate, service.percentile, wait, service.variation),
            )
        )
    return tuple(placed)
