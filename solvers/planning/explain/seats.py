"""Finds seats for a service in what the others leave: on which GPUs, in which shapes, at which rates."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from solvers.planning.explain.ground import Ground, Notes, ServiceTerms
from solvers.planning.fleet.commons import Commons, share_of
from solvers.planning.fleet.grids import ROUNDING, SM, Floats, Ints
from solvers.planning.fleet.room_shapes import RoomShapes
from solvers.planning.problem import Instance, Place
from solvers.planning.search.realise import spread_evenly

CALL_STEPS, PICK_STEPS = 4000, 40  # besides those of looking at shapes
ENOUGH_SHARE = 1 - 1e-9  # of a rate
SMS = np.arange(SM)


@dataclass(frozen=True, slots=True)
class Pick:
    """A shape on a GPU."""

    place: Place
    shapes: RoomShapes
    row: int
    sm_percent: int

    @property
    def cap(self) -> float:
        return float(self.shapes.cap[self.row, self.sm_percent])


@dataclass(frozen=True, slots=True)
class FoundSeats:
    """New seats for a service, the rates of these and of the instances it has, and their sum."""

    picks: tuple[Pick, ...]
    rates: tuple[float, ...]  # of the new ones
    own: tuple[float, ...]  # of those it has
    rate_per_second: float
    commons: Commons | None = None  # with the new seats


NOTHING = FoundSeats((), (), (), 0.0)


def seats(
    ground: Ground, terms: ServiceTerms, notes: Notes, own: Sequence[float] = (), whole: bool = False
) -> FoundSeats:
    """Finds seats for as much of the service's rate as can be carried, each new instance on a GPU of its own.

    `own` are the caps of instances that it keeps; `whole` asks for all of its rate or nothing.
    """
    rate, least = terms.service.rate_per_second, terms.service.min_instances
    looked = [ground.find_shapes(view, terms, notes) for view in ground.views]
    notes.meter.spend(CALL_STEPS)
    best = NOTHING
    is_limited = terms.limit is not None or terms.policy.power_budget_w is not None
    for is_densest in (False, True) if is_limited else (False,):
        worth = ShapeWorth(rate, is_densest)
        tops = [_tops(shapes, worth) for shapes in looked]
        if whole and _too_few(looked, tops, own, rate, least):
            return NOTHING
        commons = ground.commons.copy()
        picks = _picked(commons, terms, notes, looked, tops, own, worth)
        if len(picks) + len(own) < max(least, 1):
            continue
        loads = spread_evenly([*own, *(pick.cap for pick in picks)], rate, least)
        if sum(loads) <= best.rate_per_second * (1 + 1e-9) or min(loads) <= 0:
            continue
        best = FoundSeats(tuple(picks), tuple(loads[len(own) :]), tuple(loads[: len(own)]), sum(loads), commons)
        if best.rate_per_second >= rate * ENOUGH_SHARE:
            break
    return best if best.rate_per_second >= rate * ENOUGH_SHARE or not whole else NOTHING


@dataclass(frozen=True, slots=True)
class ShapeWorth:
    """Ranks shapes: by the rate they carry, at most the one that is needed, or by that rate for each SM."""

    rate: float
    is_densest: bool

    def of(self, cap: Floats) -> Floats:
        """Returns the worth of caps by [row, SM%]."""
        worth: Floats = cap / np.maximum(SMS, 1) if self.is_densest else np.minimum(cap, self.rate)
        return worth


@dataclass
class CarriedRate:
    """The rate that instances carry together; the `least` largest must carry half an even share each."""

    caps: list[float]  # rising
    total: float
    least: int
    rate: float

    @classmethod
    def by(cls, own: Sequence[float], terms: ServiceTerms) -> CarriedRate:
        """Begins with the instances that the service keeps."""
        return cls(sorted(own), sum(own), max(terms.service.min_instances, 1), terms.service.rate_per_second)

    def is_enough(self) -> bool:
        if len(self.caps) < self.least:
            return False
        most = self.total if self.least < 2 else min(self.total, 2 * len(self.caps) * self.caps[-self.least])
        return most >= self.rate * ENOUGH_SHARE

    def add(self, cap: float) -> None:
        insort(self.caps, cap)
        self.total += cap


class Allowance:
    """What nodes, the tenant's limit and the power budget still allow while seats are counted in the commons."""

    def __init__(self, commons: Commons, terms: ServiceTerms) -> None:
        self.commons, self.service = commons, terms.service
        self.gpus, self.price_per_hour = commons.left_of(terms.service.tenant, terms.limit, ROUNDING)
        self.watts = commons.left_w(terms.policy)

    def is_used_up(self) -> bool:
        """Returns whether no shape at all is allowed any more."""
        return self.gpus < share_of(self.service, 1) or self.watts <= 0

    def admits(self, shapes: RoomShapes, gpu: int) -> bool:
        """Returns whether the limits allow the smallest shape of a GPU; the node is checked by `has_room`."""
        if self.watts < inf and shapes.least_w[gpu] > self.watts:
            return False
        share = share_of(self.service, shapes.least_sm[gpu])
        return share <= self.gpus and share * shapes.view.nodes[gpu].price_per_hour <= self.price_per_hour

    def allows(self, shapes: RoomShapes, row: int, sm: int) -> bool:
        share = share_of(self.service, sm)
        return bool(
            share <= self.gpus
            and share * shapes.view.price_per_hour[shapes.gpu[row]] <= self.price_per_hour
            and (self.watts == inf or shapes.busy_w[row, sm] <= self.watts)
        )

    def has_room(self, node: str, shapes: RoomShapes, row: int) -> bool:
        """Returns whether the node has the CPU cores and the host memory of a shape."""
        demand, number = shapes.ways[shapes.way[row]].profile.demand, self.commons.nodes[node]
        return bool(
            demand.cpu_cores <= self.commons.cpu_cores[number]
            and demand.host_memory_gib <= self.commons.host_memory_gib[number]
        )

    def best_of(self, shapes: RoomShapes, rows: list[int], price: float, worth: ShapeWorth) -> tuple[int, int] | None:
        """Returns row and SM% of the best shape that is allowed, the smallest of those that are equal."""
        share = np.ones(SM) if self.service.is_dedicated else SMS / 100
        inside = (share <= self.gpus) & (share * price <= self.price_per_hour)
        if not inside.any():
            return None
        cap = np.where(inside[None, :], shapes.cap[rows], 0.0)
        if self.watts < inf:
            cap = np.where(shapes.busy_w[rows] <= self.watts, cap, 0.0)
        values = worth.of(cap)
        most = float(values.max())
        if not most > 0:
            return None
        at, sm = np.nonzero(values >= most)
        least = int(np.argmin(sm))
        return rows[at[least]], int(sm[least])

    def take(self, pick: Pick) -> None:
        """Counts a seat."""
        shapes, demand = pick.shapes, pick.shapes.ways[pick.shapes.way[pick.row]].profile.demand
        share = share_of(self.service, pick.sm_percent)
        price = share * shapes.view.nodes[int(shapes.gpu[pick.row])].price_per_hour
        self.gpus, self.price_per_hour = self.gpus - share, self.price_per_hour - price
        self.commons.use_node(self.commons.nodes[pick.place[0]], demand.cpu_cores, demand.host_memory_gib)
        self.commons.gpus_taken[self.service.tenant] += share
        self.commons.price_taken[self.service.tenant] += price
        if self.watts < inf:
            watts = float(shapes.busy_w[pick.row, pick.sm_percent])
            self.watts, self.commons.drawn_w = self.watts - watts, self.commons.drawn_w + watts


@dataclass(frozen=True, slots=True)
class _Tops:
    """The best shape of each GPU that has any."""

    gpu: Ints
    row: Ints
    sm_percent: Ints
    worth: Floats


def _tops(shapes: RoomShapes, worth: ShapeWorth) -> _Tops:
    values = worth.of(shapes.cap)
    sm = values.argmax(axis=1)  # the smallest of those that are equal
    most = values[np.arange(len(sm)), sm] if len(sm) else np.zeros(0)
    order = np.lexsort((sm, -most, shapes.gpu))
    first = order[np.r_[True, shapes.gpu[order][1:] != shapes.gpu[order][:-1]]] if len(order) else order
    return _Tops(shapes.gpu[first], first, sm[first], most[first])


def _too_few(looked: list[RoomShapes], tops: list[_Tops], own: Sequence[float], rate: float, least: int) -> bool:
    """Returns whether all GPUs, each at its best, cannot carry the rate or are too few for the instances wanted."""
    most, count = sum(own), len(own)
    for shapes, top in zip(looked, tops, strict=True):
        many = np.array([len(shapes.view.places[gpu]) for gpu in top.gpu.tolist()])
        if len(many):
            most += float((shapes.cap[top.row].max(axis=1) * many).sum())
            count += int(many.sum())
    return most < rate * ENOUGH_SHARE or count < max(least, 1)


def _picked(
    commons: Commons,
    terms: ServiceTerms,
    notes: Notes,
    looked: list[RoomShapes],
    tops: list[_Tops],
    own: Sequence[float],
    worth: ShapeWorth,
) -> list[Pick]:
    """Picks the best shape of each GPU, the best GPUs first, until the rate is carried; counts them in the commons."""
    limits, carried = Allowance(commons, terms), CarriedRate.by(own, terms)
    picks: list[Pick] = []
    for number, index in _ranked(looked, tops):
        shapes, top = looked[number], tops[number]
        gpu = int(top.gpu[index])
        if not limits.admits(shapes, gpu):
            continue
        best = (int(top.row[index]), int(top.sm_percent[index]))
        for place in shapes.view.places[gpu]:
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
                shape = limits.best_of(shapes, fitting, shapes.view.nodes[gpu].price_per_hour, worth)
                if shape is None and len(fitting) == len(rows):
                    break  # a limit, which is the same for all GPUs of this kind
            if shape is None:
                continue
            picks.append(Pick(place, shapes, *shape))
            carried.add(picks[-1].cap)
            limits.take(picks[-1])
    return picks


def _ranked(looked: list[RoomShapes], tops: list[_Tops]) -> list[tuple[int, int]]:
    """Returns (number of the options, index of their GPU), the best first, the cheaper among equals."""
    worth = np.concatenate([top.worth for top in tops])
    price = np.concatenate([shapes.view.price_per_hour[top.gpu] for shapes, top in zip(looked, tops, strict=True)])
    number = np.concatenate([np.full(len(top.gpu), at) for at, top in enumerate(tops)])
    index = np.concatenate([np.arange(len(top.gpu)) for top in tops])
    order = np.lexsort((index, number, price, -worth))
    return list(zip(number[order].tolist(), index[order].tolist(), strict=True))


def instances(found: FoundSeats, terms: ServiceTerms) -> tuple[Instance, ...]:
    """Makes the instances of the new seats, each in the smallest shape of its kind that carries its load."""
    service, placed = terms.service, []
    for number, (pick, rate) in enumerate(zip(found.picks, found.rates, strict=True)):
        shapes, row, most = pick.shapes, pick.row, pick.sm_percent
        alike = np.flatnonzero((shapes.by[row, :most] == shapes.by[row, most]) & (shapes.cap[row, :most] >= rate))
        sm_percent = int(alike[0]) if len(alike) else most
        name = f"{service.name}/new-{number + 1}"
        instance = shapes.start(name, pick.place, row, sm_percent, rate, service, terms.policy)
        assert instance, f"{service.name} at {rate:g}/s and {sm_percent} % of {pick.place} was accepted"
        placed.append(instance)
    return tuple(placed)
