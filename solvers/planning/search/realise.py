"""Makes a plan of a board: drops superfluous instances, spreads rates evenly and sets timeouts where needed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from solvers.latency import latency_at, timeout_for
from solvers.planning.fleet.grids import Floats, Ints, accepted_rate
from solvers.planning.plan import NONE_UNSERVED_SHARE, Unserved
from solvers.planning.pressures import most_felt, slow_by
from solvers.planning.problem import GpuType, Instance, Service
from solvers.planning.search.improve import empty_spared
from solvers.planning.search.promise import timeouts
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import Workshop


@dataclass(frozen=True, slots=True)
class PlacedInstances:
    """The residents of a board as columns, one entry each."""

    gpu: Ints
    offer: Ints
    sm: Ints
    batch: Ints
    cap: Floats
    clock: Floats  # highest clock / its GPU's

    def __len__(self) -> int:
        return len(self.gpu)


_NONE = np.zeros(0, dtype=np.int64)
NOBODY = PlacedInstances(_NONE, _NONE, _NONE, _NONE, np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class _Seat:
    """A resident on a GPU."""

    gpu: int
    offer: int
    sm: int
    batch: int  # index into the tables' batches
    cap: float
    clock: float


def placed_instances(shop: Workshop) -> PlacedInstances:
    """Copies the residents of the board."""
    b = shop.board
    gpu, slot = np.nonzero(np.arange(b.offer.shape[1])[None, :] < b.count[:, None])
    return PlacedInstances(gpu, b.offer[gpu, slot], b.sm[gpu, slot], b.batch[gpu, slot], b.cap[gpu, slot], b.clock[gpu])


def prune(shop: Workshop) -> None:
    """Empties GPUs whose residents no service needs, the most expensive first."""
    t, b = shop.t, shop.board
    gpus = shop.used
    costs, _ = shop.costs(gpus)
    seats = placed_instances(shop)
    count = np.bincount(t.offer_service[seats.offer], minlength=len(t.services)).astype(np.int64)
    if empty_spared(shop.w, b, gpus[np.lexsort((gpus, -costs))], t.min_instances, count):
        shop.restack()


def leave_out(shop: Workshop) -> None:
    """Empties GPUs, and nodes billed whole, that cost more than leaving out what they carry; the dearest first."""
    t, b = shop.t, shop.board
    used = shop.used
    if not len(used) or shop.costs(used)[0].max() + shop.nodes.price.max() <= t.unserved_price.min():
        return  # leaving out any service costs at least its price
    for cost, gpus in _paid_together(shop):
        carried = np.zeros(len(t.services))
        for gpu in gpus:
            count = int(b.count[gpu])
            np.add.at(carried, t.offer_service[b.offer[gpu, :count]], b.cap[gpu, :count])
        missing = t.rate - b.cover + carried
        missing[(carried > 0) & (t.min_instances > 1)] = np.inf  # with too few instances the whole service is left out
        if _price_missed(t, np.minimum(missing, t.rate)) - _price_missed(t, t.rate - b.cover) < cost:
            for gpu in gpus:
                shop.empty(gpu)
    if _price_missed(t, t.rate) < shop.bill:
        shop.clear_all()
    shop.restack()


def _paid_together(shop: Workshop) -> list[tuple[float, list[int]]]:
    """Returns what emptying a GPU saves, or all used GPUs of a node that is billed whole, the most expensive first."""
    b, bill, gpus = shop.board, shop.nodes, shop.used
    costs = shop.costs(gpus)[0] - bill.gpu_price[b.pool[gpus]]
    found = [(float(cost), [int(gpu)]) for cost, gpu in zip(costs, gpus, strict=True)]
    if len(bill.gpus):
        node, whole = b.node[gpus], bill.gpu_price[b.pool[gpus]] > 0.0
        found = [entry for entry, is_whole in zip(found, whole, strict=True) if not is_whole]
        for name in np.unique(node[whole]):
            of = whole & (node == name)
            found.append((float(bill.price[name] + costs[of].sum()), gpus[of].tolist()))
    return sorted(found, key=lambda entry: (-entry[0], entry[1]))


def _price_missed(t: Tables, missing: Floats) -> float:
    return float((t.unserved_price * np.maximum(missing, 1.0))[missing > 1e-9 * t.rate].sum())


def instances(t: Tables, placed: PlacedInstances) -> tuple[list[Instance], list[Unserved]]:
    """Returns the plan's instances, with rates, timeouts and predictions, and what it leaves unserved."""
    seats, rates, unserved = _rates(t, placed)
    exec_ms = _exec_ms(t, seats)
    waits = _waits(t, seats, exec_ms, rates, unserved)
    places = [place for pool in t.pools for place in pool.gpus]
    numbers: dict[str, int] = defaultdict(int)
    found = []
    for seat, rate, time, wait in zip(seats, rates, exec_ms, waits, strict=True):
        if wait is None:
            continue
        service = _service_of(t, seat)
        numbers[service.name] += 1
        node, gpu = places[seat.gpu]
        batch = int(t.batches[seat.batch])
        found.append(
            Instance(
                id=f"{service.name}/{numbers[service.name]}",
                service=service.name,
                node=node,
                gpu=gpu,
                variant=t.offer_variant[seat.offer],
                batch=batch,
                batch_timeout_ms=wait,
                sm_percent=seat.sm,
                memory_gib=float(t.memory_gib[t.offer_profile[seat.offer], seat.batch]),
                clock_mhz=_clock_mhz(t.problem.type_of(node), seat.clock),
                rate_per_second=float(rate),
                exec_ms=float(time),
                latency_ms=float(latency_at(batch, time * t.margin, rate, service.percentile, wait, service.variation)),
            )
        )
    missed = [
        Unserved(t.services[number], float(rest))
        for number, rest in enumerate(unserved)
        if rest > NONE_UNSERVED_SHARE * t.rate[number]
    ]
    return found, missed


def serves_all(t: Tables, placed: PlacedInstances) -> bool:
    """Returns whether these residents carry every service's rate, in as many instances as it asks for."""
    owners, services = t.offer_service[placed.offer], len(t.services)
    carried, count = np.bincount(owners, placed.cap, services), np.bincount(owners, minlength=services)
    for service in np.flatnonzero(t.min_instances > 1):
        rate, least = float(t.rate[service]), int(t.min_instances[service])
        if count[service] < least:
            return False
        carried[service] = sum(spread_evenly(placed.cap[owners == service].tolist(), rate, least))
    return bool(np.all(t.rate - carried <= NONE_UNSERVED_SHARE * t.rate))


def _service_of(t: Tables, seat: _Seat) -> Service:
    return t.problem.services[t.services[t.offer_service[seat.offer]]]


def _exec_ms(t: Tables, seats: list[_Seat]) -> Floats:
    """Returns the execution time of each resident among its neighbours."""
    policy = t.problem.policy
    by_gpu: dict[int, list[int]] = defaultdict(list)
    for index, seat in enumerate(seats):
        by_gpu[seat.gpu].append(index)
    exec_ms = np.zeros(len(seats))
    for members in by_gpu.values():
        pressures = [complex(t.pressure[t.offer_profile[seats[i].offer], seats[i].sm]) for i in members]
        total = sum(pressures)
        free = (100 - sum(seats[i].sm for i in members)) / 100
        outside = policy.share_pressure * free if policy.pricing == "share" else 0.0
        for i, own in zip(members, pressures, strict=True):
            profile = t.offer_profile[seats[i].offer]
            alone = t.exec_ms[profile, seats[i].batch, seats[i].sm]
            feels = complex(t.sensitivity[profile])
            exec_ms[i] = alone * (1 + slow_by(feels, total - own)) * (1 + most_felt(feels) * outside)
            exec_ms[i] *= seats[i].clock ** t.clock_exponent[profile]
    return exec_ms


def _waits(t: Tables, seats: list[_Seat], exec_ms: Floats, rates: Floats, unserved: Floats) -> list[float | None]:
    """Returns the timeouts. Lowers each rate that no timeout allows, and adds what that loses to `unserved`."""
    services = [_service_of(t, seat) for seat in seats]
    batches = [int(t.batches[seat.batch]) for seat in seats]
    waits = timeouts(services, batches, exec_ms * t.margin, list(rates))
    for i in [i for i, wait in enumerate(waits) if wait is None]:
        # A service with too few instances was dropped; where shares are priced, the SMs it frees slow its neighbours.
        of, judged = services[i], float(exec_ms[i] * t.margin)
        lower = accepted_rate(t.problem.policy, of, batches[i], float(exec_ms[i])) * (1 - 1e-9)
        if lower > 0:
            waits[i] = timeout_for(batches[i], judged, of.slo_ms, of.percentile, lower, of.variation)
        unserved[t.number_of[of.name]] += rates[i] - lower
        rates[i] = lower
    return waits


def _clock_mhz(gpu_type: GpuType, ratio: float) -> float:
    """Returns the clock of the type that has this ratio to the highest."""
    return min(gpu_type.clocks_mhz, key=lambda clock: abs(gpu_type.top_clock_mhz / clock - ratio))


def _rates(t: Tables, placed: PlacedInstances) -> tuple[list[_Seat], Floats, Floats]:
    """Returns the residents that stay, the rate of each, and the unserved rate of each service."""
    by_service: dict[int, list[_Seat]] = defaultdict(list)
    owners = t.offer_service[placed.offer].tolist()
    residents = (placed.gpu.tolist(), placed.offer.tolist(), placed.sm.tolist(), placed.batch.tolist())
    carried = (placed.cap.tolist(), placed.clock.tolist())
    for owner, gpu, offer, sm, batch, cap, clock in zip(owners, *residents, *carried, strict=True):
        by_service[owner].append(_Seat(gpu, offer, sm, batch, cap, clock))
    seats: list[_Seat] = []
    rates: list[float] = []
    unserved = t.rate.copy()
    for service in sorted(by_service):
        own = by_service[service]
        if t.problem.policy.pricing == "gpu":  # where shares are priced, the SMs that one frees slow the others
            own = _select_needed(own, float(t.rate[service]), int(t.min_instances[service]))
        if len(own) < t.min_instances[service]:
            continue  # all or nothing: too few instances
        shares = spread_evenly([seat.cap for seat in own], float(t.rate[service]), int(t.min_instances[service]))
        unserved[service] = max(0.0, float(t.rate[service]) - sum(shares))
        seats += own
        rates += shares
    order = sorted(range(len(seats)), key=lambda i: (seats[i].gpu, i))
    return [seats[i] for i in order], np.array([rates[i] for i in order]), unserved


def _select_needed(seats: list[_Seat], rate: float, least: int) -> list[_Seat]:
    """Returns the residents that the rate needs; the smallest superfluous ones are dropped."""
    total, needed = sum(seat.cap for seat in seats), sorted(seats, key=lambda seat: (-seat.cap, seat.gpu))
    while len(needed) > max(least, 1) and total - needed[-1].cap >= rate * (1 - 1e-12):
        total -= needed.pop().cap
    return needed


def spread_evenly(caps: list[float], rate: float, least: int) -> list[float]:
    """Spreads `rate`, or as much of it as the caps allow, as evenly as the caps allow.

    The `least` largest must carry half an even share each; where their caps are too small for that, less is served.
    """
    rate = min(rate, sum(caps))
    if least > 1:
        rate = min(rate, 2 * len(caps) * sorted(caps, reverse=True)[least - 1])
    order = sorted(range(len(caps)), key=lambda i: caps[i])
    shares, rest = [0.0] * len(caps), rate
    for position, i in enumerate(order):
        shares[i] = min(caps[i], rest / (len(caps) - position))
        rest -= shares[i]
    return shares
