"""From a board to a plan: nobody superfluous, rates as even as they go, timeouts where they are needed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from solvers.latency import latency_at, max_rate, timeout_for
from solvers.planning.plan import NONE_UNSERVED_SHARE, Unserved
from solvers.planning.problem import GpuType, Instance
from solvers.planning.search.improve import spared
from solvers.planning.search.promise import timeouts
from solvers.planning.search.tables import Floats, Ints, Tables
from solvers.planning.search.workshop import Workshop


@dataclass(frozen=True, slots=True)
class PlacedInstances:
    """A board, kept: one entry a resident."""

    gpu: Ints
    offer: Ints
    sm: Ints
    batch: Ints
    cap: Floats
    clock: Floats  # highest clock / its GPU's


@dataclass(frozen=True, slots=True)
class _Seat:
    """One resident on one GPU."""

    gpu: int
    offer: int
    sm: int
    batch: int  # index into the tables' batches
    cap: float
    clock: float


def placed_instances(shop: Workshop) -> PlacedInstances:
    """What the board holds now."""
    b = shop.board
    gpu, slot = np.nonzero(np.arange(b.offer.shape[1])[None, :] < b.count[:, None])
    return PlacedInstances(gpu, b.offer[gpu, slot], b.sm[gpu, slot], b.batch[gpu, slot], b.cap[gpu, slot], b.clock[gpu])


def prune(shop: Workshop) -> None:
    """Take whole GPUs back that nobody needs, the dearest first."""
    t, b = shop.t, shop.board
    gpus = shop.used
    costs, _ = shop.costs(gpus)
    seats = placed_instances(shop)
    count = np.bincount(t.offer_service[seats.offer], minlength=len(t.services)).astype(np.int64)
    if spared(shop.w, b, gpus[np.lexsort((gpus, -costs))], t.min_instances, count):
        shop.restack()


def leave_out(shop: Workshop) -> None:
    """Take GPUs back that cost more than it does to leave out what they carry, the dearest first."""
    t, b = shop.t, shop.board
    gpus = shop.used
    costs, _ = shop.costs(gpus)
    if not len(gpus) or costs.max() <= t.unserved_price.min():
        return  # leaving out any service costs its price at least
    for gpu, cost in sorted(zip(gpus.tolist(), costs.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0])):
        carried = np.zeros(len(t.services))
        count = int(b.count[gpu])
        np.add.at(carried, t.offer_service[b.offer[gpu, :count]], b.cap[gpu, :count])
        missing = t.rate - b.cover + carried
        missing[(carried > 0) & (t.min_instances > 1)] = np.inf  # with too few instances all of it is left out
        if _missed(t, np.minimum(missing, t.rate)) - _missed(t, t.rate - b.cover) < cost:
            shop.empty(gpu)
    if _missed(t, t.rate) < shop.cost:
        shop.clear_all()
    shop.restack()


def _missed(t: Tables, missing: Floats) -> float:
    return float((t.unserved_price * np.maximum(missing, 1.0))[missing > 1e-9 * t.rate].sum())


def instances(t: Tables, stands: PlacedInstances) -> tuple[list[Instance], list[Unserved]]:
    """The plan's instances, with rates, timeouts and predictions; and what of each service is left."""
    seats, rates, left = _rates(t, stands)
    policy = t.problem.policy
    place = [gpu for pool in t.pools for gpu in pool.gpus]
    by_gpu: dict[int, list[int]] = defaultdict(list)
    for index, seat in enumerate(seats):
        by_gpu[seat.gpu].append(index)
    exec_ms = np.zeros(len(seats))
    for members in by_gpu.values():
        pressures = [float(t.pressure[t.offer_profile[seats[i].offer], seats[i].sm]) for i in members]
        total = sum(pressures)
        free = (100 - sum(seats[i].sm for i in members)) / 100
        outside = policy.share_pressure * free if policy.pricing == "share" else 0.0
        for i, own in zip(members, pressures, strict=True):
            profile = t.offer_profile[seats[i].offer]
            alone = t.exec_ms[profile, seats[i].batch, seats[i].sm]
            feels = t.sensitivity[profile]
            exec_ms[i] = alone * (1 + feels * (total - own)) * (1 + feels * outside)
            exec_ms[i] *= seats[i].clock ** t.clock_exponent[profile]
    services = [t.problem.services[t.services[t.offer_service[seat.offer]]] for seat in seats]
    batches = [int(t.batches[seat.batch]) for seat in seats]
    waits = timeouts(
        [s.percentile for s in services], batches, list(exec_ms * t.margin), [s.slo_ms for s in services], list(rates)
    )
    for i in [i for i, wait in enumerate(waits) if wait is None]:
        # A service with too few instances has left, and where shares are priced what it frees slows the others.
        judged = float(exec_ms[i] * t.margin)
        most = max_rate(batches[i], judged, services[i].slo_ms, services[i].percentile)[0]
        lower = min(most, t.utilization * batches[i] / exec_ms[i] * 1000) * (1 - 1e-9)
        if lower > 0:
            waits[i] = timeout_for(batches[i], judged, services[i].slo_ms, services[i].percentile, lower)
        left[t.number_of[services[i].name]] += rates[i] - lower
        rates[i] = lower
    numbers: dict[str, int] = defaultdict(int)
    found = []
    for seat, service, batch, rate, time, wait in zip(seats, services, batches, rates, exec_ms, waits, strict=True):
        if wait is None:
            continue
        numbers[service.name] += 1
        profile = t.offer_profile[seat.offer]
        node, index = place[seat.gpu]
        found.append(
            Instance(
                id=f"{service.name}/{numbers[service.name]}",
                service=service.name,
                node=node,
                gpu=index,
                variant=t.offer_variant[seat.offer],
                batch=batch,
                batch_timeout_ms=wait,
                sm_percent=seat.sm,
                memory_gib=float(t.memory_gib[profile, seat.batch]),
                clock_mhz=_clock_mhz(t.problem.type_of(node), seat.clock),
                rate_per_second=float(rate),
                exec_ms=float(time),
                latency_ms=float(latency_at(batch, time * t.margin, rate, service.percentile, wait)),
            )
        )
    unserved = [
        Unserved(t.services[number], float(rest))
        for number, rest in enumerate(left)
        if rest > NONE_UNSERVED_SHARE * t.rate[number]
    ]
    return found, unserved


def _clock_mhz(gpu_type: GpuType, ratio: float) -> float:
    """The clock of the type whose ratio to the highest this is."""
    return min(gpu_type.clocks_mhz, key=lambda clock: abs(gpu_type.top_clock_mhz / clock - ratio))


def _rates(t: Tables, stands: PlacedInstances) -> tuple[list[_Seat], Floats, Floats]:
    """Who stays, what each carries, and what of each service nobody does."""
    by_service: dict[int, list[_Seat]] = defaultdict(list)
    owners = t.offer_service[stands.offer].tolist()
    residents = (stands.gpu.tolist(), stands.offer.tolist(), stands.sm.tolist(), stands.batch.tolist())
    carried = (stands.cap.tolist(), stands.clock.tolist())
    for owner, gpu, offer, sm, batch, cap, clock in zip(owners, *residents, *carried, strict=True):
        by_service[owner].append(_Seat(gpu, offer, sm, batch, cap, clock))
    seats: list[_Seat] = []
    rates: list[float] = []
    left = t.rate.copy()
    for service in sorted(by_service):
        mine = by_service[service]
        if t.problem.policy.pricing == "gpu":  # where shares are priced, what one leaves slows the others
            mine = _needed(mine, float(t.rate[service]), int(t.min_instances[service]))
        if len(mine) < t.min_instances[service]:
            continue  # all or nothing: too few instances
        shares = even([seat.cap for seat in mine], float(t.rate[service]), int(t.min_instances[service]))
        left[service] = max(0.0, float(t.rate[service]) - sum(shares))
        seats += mine
        rates += shares
    order = sorted(range(len(seats)), key=lambda i: (seats[i].gpu, i))
    return [seats[i] for i in order], np.array([rates[i] for i in order]), left


def _needed(seats: list[_Seat], rate: float, least: int) -> list[_Seat]:
    """Those without whom the rate is not carried; the smallest superfluous ones go."""
    total, kept = sum(seat.cap for seat in seats), sorted(seats, key=lambda seat: (-seat.cap, seat.gpu))
    while len(kept) > max(least, 1) and total - kept[-1].cap >= rate * (1 - 1e-12):
        total -= kept.pop().cap
    return kept


def even(caps: list[float], rate: float, least: int) -> list[float]:
    """Rates that add up to `rate`, or to all that may be carried, none above its cap and as even as they go.

    The `least` largest must carry half an even share each: where their caps are too small for that, less is served.
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
