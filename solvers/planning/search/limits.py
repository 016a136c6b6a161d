"""Enforces the limits of tenants and of watts on a board; what is cheapest to leave out goes first."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from solvers.latency import busy_fraction
from solvers.planning.search.capacity import best_rate
from solvers.planning.search.realise import instances, placed_instances
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import Workshop

BUDGET_SHARE = 0.99  # of a budget of watts: rates change until the plan is written
SURE_SHARE = 1 - 1e-9


def enforce_limits(shop: Workshop) -> None:
    """Removes instances until the board is within the tenants' limits and the budget of watts."""
    if shop.t.problem.limits:
        _keep_tenants(shop)
    if shop.t.problem.policy.power_budget_w is not None:
        _keep_power(shop)


def busy_part(shop: Workshop) -> float:
    """Returns the watts that the board draws at its rates, as a part of those at full load; 0 for an empty board."""
    whole = float(shop.costs(shop.used)[1].sum())
    return sum(_busy_w(shop).values()) / whole if whole > 0 else 0.0


def idle_w(t: Tables) -> float:
    """Returns the idle watts of all GPUs, used or not."""
    return sum(t.problem.gpu_types[pool.gpu_type].idle_w * len(pool.gpus) for pool in t.pools)


def _busy_w(shop: Workshop) -> dict[tuple[int, int], float]:
    """Returns busy watts by (GPU of the board, offer)."""
    t = shop.t
    number = {place: index for index, place in enumerate(gpu for pool in t.pools for gpu in pool.gpus)}
    offer_of = {
        (site, t.services[t.offer_service[offer]], t.offer_variant[offer]): offer
        for site in range(len(t.site_types))
        for offer in range(int(t.site_start[site]), int(t.site_start[site + 1]))
    }
    found: dict[tuple[int, int], float] = defaultdict(float)
    for instance in instances(t, placed_instances(shop))[0]:
        gpu_type, gpu = t.problem.nodes[instance.node].gpu_type, number[instance.place]
        offer = offer_of[int(shop.pools.site[shop.board.pool[gpu]]), instance.service, instance.variant]
        profile = t.offer_profile[offer]
        slower = t.problem.gpu_types[gpu_type].top_clock_mhz / instance.clock_mhz
        watts = float(t.power_w[profile, instance.sm_percent] * slower ** -t.power_exponent[profile])
        load = min(instance.rate_per_second * instance.exec_ms / instance.batch / 1000, 1.0)
        found[gpu, int(offer)] += watts * busy_fraction(instance.batch, load)
    return found


def _keep_power(shop: Workshop) -> None:
    """Removes the offers whose loss a watt is least."""
    t = shop.t
    budget = float(t.problem.policy.power_budget_w or 0.0) * BUDGET_SHARE
    for _ in range(20):
        busy = _busy_w(shop)
        over = idle_w(t) + sum(busy.values()) - budget
        if over <= 0:
            return
        loss = {at: _price_missed(shop, at[0], at[1]) / max(watts, 1e-9) for at, watts in busy.items() if watts > 0}
        for gpu, offer in sorted(loss, key=lambda at: (loss[at], at)):
            evict(shop, gpu, offer)
            over -= busy[gpu, offer]
            if over <= 0:
                break
        shop.restack()


def _keep_tenants(shop: Workshop) -> None:
    """Removes the offers whose loss a share of a GPU is least, or shrinks them."""
    t, b = shop.t, shop.board
    tenants = {service.tenant: number for service, number in zip(
        (t.problem.services[name] for name in t.services), t.tenant.tolist(), strict=True
    )}  # fmt: skip
    for name, limit in sorted(t.problem.limits.items()):
        if name not in tenants or (limit.gpus is None and limit.price_per_hour is None):
            continue
        seats: list[tuple[float, int, int, float, float]] = []
        for gpu in shop.used.tolist():
            price = t.problem.nodes[t.pools[b.pool[gpu]].gpus[0][0]].price_per_hour
            for slot in range(int(b.count[gpu])):
                offer = int(b.offer[gpu, slot])
                service = t.offer_service[offer]
                if t.tenant[service] == tenants[name]:
                    share = 1.0 if t.is_dedicated[service] else float(b.sm[gpu, slot]) / 100
                    seats.append((_price_missed(shop, gpu, offer) / share, gpu, offer, share, share * price))
        gpus, price = sum(seat[3] for seat in seats), sum(seat[4] for seat in seats)
        most_gpus = np.inf if limit.gpus is None else limit.gpus * SURE_SHARE
        most_price = np.inf if limit.price_per_hour is None else limit.price_per_hour * SURE_SHARE
        for _, gpu, offer, share, cost in sorted(seats):
            if gpus <= most_gpus and price <= most_price:
                break
            evict(shop, gpu, offer)
            gpus, price = gpus - share, price - cost
            each = cost / share
            left = min(most_gpus - gpus, (most_price - price) / each if each > 0 else np.inf)
            taken = _back_with(shop, gpu, offer, int(100 * min(left, share) + 1e-9))
            gpus, price = gpus + taken / 100, price + taken / 100 * each
    shop.restack()


def _back_with(shop: Workshop, gpu: int, offer: int, sm_percent: int) -> int:
    """Puts an offer back on its GPU with fewer SM%, if it carries anything there; returns the SM% taken."""
    t, column = shop.t, shop.column(gpu)
    service, profile = t.offer_service[offer], t.offer_profile[offer]
    if sm_percent <= 0 or t.problem.policy.pricing == "share" or t.is_dedicated[service]:
        return 0
    beside = t.offer_profile[column.offers]
    taken_gib = float(t.memory_gib[beside, column.batches].sum())
    pressure = complex(t.pressure[beside, column.sms].sum())
    site = int(shop.pools.site[shop.board.pool[gpu]])
    memory_gib = float(shop.w.site_memory_gib[site]) - taken_gib
    cap, batch = best_rate(shop.w, offer, sm_percent, pressure, column.clock, memory_gib)
    if not cap > 0 or batch < 0 or t.memory_gib[profile, batch] > memory_gib:
        return 0
    shop.empty(gpu)
    shop.seat(gpu, column._replace(
        offers=np.append(column.offers, offer), sms=np.append(column.sms, sm_percent),
        batches=np.append(column.batches, batch), caps=np.append(column.caps, cap),
    ))  # fmt: skip
    return sm_percent


def _price_missed(shop: Workshop, gpu: int, offer: int) -> float:
    """Returns the cost of removing the instances of an offer from a GPU."""
    t, b = shop.t, shop.board
    service = t.offer_service[offer]
    caps = sum(float(b.cap[gpu, i]) for i in range(int(b.count[gpu])) if b.offer[gpu, i] == offer)
    spare = max(float(b.cover[service] - t.rate[service]), 0.0)
    return float(t.unserved_price[service]) * max(caps - spare, 0.0)


def evict(shop: Workshop, gpu: int, offer: int) -> None:
    """Removes an offer from a GPU; where shares are priced, everything on it, since freed SMs slow the others."""
    column = shop.column(gpu)
    shop.empty(gpu)
    stay = column.offers != offer
    if stay.any() and shop.t.problem.policy.pricing == "gpu":
        shop.seat(gpu, column.only(stay))
