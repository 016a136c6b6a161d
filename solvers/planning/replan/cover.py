"""Follows rates up and down: uses spare capacity first, then batches, then room on GPUs in use, then new GPUs.

No instance of another service moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.replan.kernels import bear, capacities, keeps
from solvers.planning.replan.rates import sum_of
from solvers.planning.replan.room import list_options
from solvers.planning.replan.running_board import RunningBoard

CLOSE_SHARE = 1e-7  # of a rate: less than this is not needed
IDLE_SM_SHARE = 0.6  # of its GPU's value: an SM that is idle now may save one tomorrow
GOOD_SHARE = 0.6  # of its value: a GPU whose pattern is worth less is opened last
HALF_EMPTY_SHARE = 0.5  # of its value: a GPU of changing services alone that is worth less is emptied and refilled


LOOKS = 6  # at the rest, while each gives something


@dataclass
class Seats:
    """The instances of a service, and what each may carry."""

    gpus: Ints
    slots: Ints
    caps: Floats


def settle(d: RunningBoard, services: Iterable[int], prices: Floats, may_empty: bool = True) -> None:
    """Finds room for the rates (`d.w.rate`) of these services, as far as there is any.

    GPUs that they alone use, and little, are emptied and filled again if they may be. Where room is short, others may
    take what was emptied.
    """
    order = sorted(services, key=lambda s: (-prices[s] * d.w.rate[s], s))
    need = np.zeros(len(d.w.rate))
    for service in order:
        rate = float(d.w.rate[service])
        seats = spare(d, service, known(d, service, rate))
        carried = sum_of(seats.caps)
        if carried >= rate * (1 - CLOSE_SHARE):  # capacity beyond the rate is not needed
            d.x.rate[seats.gpus, seats.slots] = seats.caps * min(1.0, rate / carried)
        else:
            need[service] = rate - carried
    for service in _empty_half(d, order, prices) if may_empty else ():
        need[service] = missing(d, service)
    if need.any():
        _cover(d, order, need, prices)


def known(d: RunningBoard, service: int, need: float) -> Seats:
    """Returns its instances with what they may carry; changes their batches if `need` is not met otherwise."""
    gpus, slots = d.seats(service)
    now, best, by = np.zeros(len(gpus)), np.zeros(len(gpus)), np.zeros(len(gpus), dtype=np.int64)
    capacities(d.w, d.b, d.x, gpus, slots, now, best, by)
    short = need - sum_of(now)
    if short > CLOSE_SHARE * need:
        for k in np.argsort(now - best, kind="stable"):
            if short <= CLOSE_SHARE * need or best[k] <= now[k] * (1 + 1e-6):
                break
            d.reshape(int(gpus[k]), int(slots[k]), int(d.b.sm[gpus[k], slots[k]]), int(by[k]))
            short -= best[k] - now[k]
            now[k] = best[k]
    d.touched.add(service)
    # While others look for room, each counts with all that it may carry, so that it stays possible.
    d.b.cap[gpus, slots] = d.x.rate[gpus, slots] = now
    return Seats(gpus, slots, now)


def missing(d: RunningBoard, service: int) -> float:
    """Returns the part of its rate that its instances may not carry."""
    gpus, slots = d.seats(service)
    short = float(d.w.rate[service] - d.b.cap[gpus, slots].sum())
    return short if short > CLOSE_SHARE * d.w.rate[service] else 0.0


def spare(d: RunningBoard, service: int, seats: Seats) -> Seats:
    """Stops instances that are not needed, first those that free the most for the rate they carry."""
    over = sum_of(seats.caps) - float(d.w.rate[service])
    if over <= 0 or over * (1 + CLOSE_SHARE) < seats.caps.min():
        return seats
    value, alone = d.x.value[seats.gpus], d.b.count[seats.gpus] == 1
    anchored = alone & (d.x.job_count[seats.gpus] > 0)  # a job that stays would have to pay for the GPU
    frees = np.where(alone, value, IDLE_SM_SHARE * value * d.b.sm[seats.gpus, seats.slots] / 100)
    gone = []
    for k in np.argsort(-frees / np.maximum(seats.caps, 1e-12), kind="stable"):
        if (
            seats.caps[k] <= over * (1 + CLOSE_SHARE)
            and not anchored[k]
            and may_go(d, int(seats.gpus[k]), int(seats.slots[k]))
        ):
            over -= seats.caps[k]
            gone.append((int(seats.gpus[k]), int(seats.slots[k])))
    for gpu, slot in sorted(gone, reverse=True):  # the last slot first: it fills the gap
        d.stop(gpu, slot)
    gpus, slots = d.seats(service)
    return Seats(gpus, slots, d.b.cap[gpus, slots])


def may_go(d: RunningBoard, gpu: int, slot: int) -> bool:
    """Returns whether the others keep their SLOs: where shares are priced, strangers use the SMs that become free."""
    if not d.w.share_pressure or d.b.count[gpu] == 1:
        return True
    profile = d.w.offer_profile[d.b.offer[gpu, slot]]
    sm, rate, pressure = int(d.b.sm[gpu, slot]), float(d.x.rate[gpu, slot]), complex(d.x.job_pressure[gpu])
    # Tried without its SMs and its rate; the pressure that it still has at 0 SM% is subtracted elsewhere.
    d.b.sm[gpu, slot], d.x.rate[gpu, slot] = 0, 0.0
    d.x.job_pressure[gpu] = pressure - complex(d.w.pressure[profile, 0])
    held = bool(keeps(d.w, d.b, d.x, gpu))
    d.b.sm[gpu, slot], d.x.rate[gpu, slot], d.x.job_pressure[gpu] = sm, rate, pressure
    return held


def _empty_half(d: RunningBoard, services: list[int], prices: Floats) -> list[int]:
    """Empties GPUs that changing services alone use, and little; returns the services to place again."""
    if not services:
        return []
    held, counts = np.unique(np.concatenate([d.seats(service)[0] for service in services]), return_counts=True)
    alone = (counts == d.b.count[held]) & (d.x.job_count[held] == 0)
    gone: set[int] = set()
    for gpu, count in zip(held[alone].tolist(), counts[alone].tolist(), strict=True):
        owners = d.w.offer_service[d.b.offer[gpu, :count]]
        worth = float((prices[owners] * np.minimum(d.b.cap[gpu, :count], d.w.rate[owners])).sum())
        if worth < HALF_EMPTY_SHARE * d.x.value[gpu]:
            gone.update(owners.tolist())
            for slot in range(count - 1, -1, -1):
                d.stop(gpu, slot)
    return sorted(gone)


def _cover(d: RunningBoard, order: list[int], need: Floats, prices: Floats) -> None:
    """Meets `need` on GPUs in use while that is worth their SMs, on new GPUs, then wherever there is room at all."""
    least = max(1, int(d.x.least_sm.min(initial=101)))
    d.doubt()
    order = [service for service in order if need[service] > 0]
    for part, worst in ((IDLE_SM_SHARE, GOOD_SHARE), (0.0, 0.0)):
        gpus = d.roomy(least)
        for service in order:
            if need[service] > 0:
                need[service] = _fit_in(d, service, float(need[service]), float(prices[service]), part, gpus)
        if need.any():
            _open(d, need, prices, worst)
    limited = [s for s in order if need[s] > 0]
    for service in limited:  # their tenants have limits, which patterns do not know
        d.restack()
        pools = d.shop.pools
        fresh = [
            int(pools.empty[pools.start[p] + n - 1 - k])
            for p, n in enumerate(pools.empties) for k in range(min(int(n), 8))
        ]  # fmt: skip
        if not fresh:
            break
        gpus = np.array(fresh, dtype=np.int64)
        need[service] = _fit_in(d, service, float(need[service]), float(prices[service]), 0.0, gpus)


def _fit_in(d: RunningBoard, service: int, need: float, worth: float, part: float, gpus: Ints) -> float:
    """Puts more of a service on these GPUs, the most for its SMs first; returns what is still needed."""
    enough = CLOSE_SHARE * float(d.w.rate[service])
    o = d.options
    for _ in range(LOOKS):
        own, slots = d.seats(service)
        caps = d.b.cap[own, slots]
        count = list_options(
            d.w, d.b, d.x, d.shop.tabled, service, need, worth, part, gpus, own, slots, caps, o, d.guesses
        )
        used: set[int] = set()
        for k in np.argsort(-o.score[:count], kind="stable").tolist():
            if need <= enough or o.score[k] < part:
                break
            gpu, slot, cap = int(o.gpu[k]), int(o.slot[k]), float(o.cap[k])
            before = float(d.b.cap[gpu, slot]) if slot >= 0 else 0.0
            if cap - before > need * (1 + 1e-6) and used:
                break  # less of it is enough: look once more
            offer, sm, batch = int(o.offer[k]), int(o.sm[k]), int(o.batch[k])
            if gpu in used or not _is_allowed(d, service, gpu, slot, offer, sm):
                continue
            used.add(gpu)
            if slot >= 0:
                d.reshape(gpu, slot, sm, batch)
            else:
                slot = d.start(gpu, offer, sm, batch, float(d.w.memory_gib[d.w.offer_profile[offer], batch]))
            d.b.cap[gpu, slot] = d.x.rate[gpu, slot] = cap
            need -= cap - before
        if used:
            bear(d.w, d.b, d.x, np.array(sorted(used), dtype=np.int64))
        if need <= enough:
            return 0.0
        if not used:
            break
    return need


def _is_allowed(d: RunningBoard, service: int, gpu: int, slot: int, offer: int, sm: int) -> bool:
    """Returns whether the tenant's limit and the node still allow an option after those that were taken."""
    w, x = d.w, d.x
    tenant, profile, node = w.service_tenant[service], w.offer_profile[offer], d.b.node[gpu]
    grown = sm - (int(d.b.sm[gpu, slot]) if slot >= 0 else 0)
    share = grown / 100 if not w.dedicated[service] else (0.0 if slot >= 0 else 1.0)
    if share > x.gpus_left[tenant] + CLOSE_SHARE or share * x.price[gpu] > x.price_left[tenant] + CLOSE_SHARE:
        return False
    if slot >= 0:
        return True
    fresh = gpu not in d.homes[service]  # another variant may run there by now
    return bool(fresh and w.cpu_cores[profile] <= d.b.cpu[node] and w.host_memory_gib[profile] <= d.b.host[node])


def _open(d: RunningBoard, need: Floats, prices: Floats, worst: float) -> None:
    """Opens GPUs, those of nodes that are paid already first; fills them, and subtracts what they carry from `need`."""
    limited = np.isfinite(d.x.gpus_left) | np.isfinite(d.x.price_left)
    wanted = np.where(limited[d.w.service_tenant], 0.0, need)
    if d.list_paid():
        _fill(d, need, wanted, prices, 0.0)
    d.restack()
    _fill(d, need, wanted, prices, worst)


def _fill(d: RunningBoard, need: Floats, wanted: Floats, prices: Floats, worst: float) -> None:
    """Fills empty GPUs that are listed with what is wanted, and subtracts what they carry from `need`."""
    if not wanted.any():
        return
    used = d.shop.fill(prices, wanted, worst)
    d.filled(used)
    for gpu in map(int, used):
        count = int(d.b.count[gpu])
        for service, cap in zip(d.w.offer_service[d.b.offer[gpu, :count]], d.b.cap[gpu, :count], strict=True):
            need[service] = max(0.0, need[service] - cap)
    need[need <= CLOSE_SHARE * d.w.rate] = 0.0
