"""Compiled: take a few GPUs apart and fill them anew; keep what is cheaper, or as cheap with more to spare."""

from __future__ import annotations

import numpy as np

from solvers.compiled import njit
from solvers.planning.arrays import BOARD, F1, F8, I1, I8, WORLD, Board, World
from solvers.planning.fill import POOLS, TABLED, Pools, Tabled, clear, fill, put
from solvers.planning.pattern import PATTERN, SCRATCH, Pattern, Scratch
from solvers.planning.tables import Floats, Ints

FEW_MORE = 4  # empty GPUs of each pool that may be used beside those taken apart


@njit(F8(WORLD, BOARD, POOLS, I8, F8))
def cost_of(w: World, b: Board, pools: Pools, gpu: int, watt_price: float) -> float:
    """What a GPU costs with those who stand on it, at a price of busy watts."""
    if b.count[gpu] == 0:
        return 0.0
    pool = b.pool[gpu]
    site = pools.site[pool]
    sm, memory, watts = 0.0, 0.0, 0.0
    for i in range(b.count[gpu]):
        offer = b.offer[gpu, i]
        profile = w.offer_profile[offer]
        sm += b.sm[gpu, i]
        memory += w.memory_gib[profile, b.batch[gpu, i]]
        watts += w.power_w[profile, b.sm[gpu, i]] * b.clock[gpu] ** -w.power_exponent[profile]
        if w.dedicated[w.offer_service[offer]] == 1:
            sm = 100.0
    used = max(sm, 100.0 * memory / w.site_memory_gib[site])
    return pools.price[pool] + pools.sm_price[pool] * used + watt_price * watts


@njit((WORLD, BOARD, POOLS, I1, F1, F1))
def costs_of(w: World, b: Board, pools: Pools, gpus: Ints, costs: Floats, watts: Floats) -> None:
    """What each of these GPUs costs, and its busy watts."""
    for i in range(gpus.shape[0]):
        costs[i] = cost_of(w, b, pools, gpus[i], w.energy_price)
        watts[i] = cost_of(w, b, pools, gpus[i], w.energy_price + 1.0) - costs[i]


@njit(I8(WORLD, BOARD, I1, I1, I1))
def spared(w: World, b: Board, order: Ints, least: Ints, standing: Ints) -> int:
    """Clear every GPU in `order` that nobody needs, in that order; how many. `standing` counts instances a service."""
    gone = 0
    for gpu in order:
        needed = False
        for i in range(b.count[gpu]):
            service = w.offer_service[b.offer[gpu, i]]
            carried, here = 0.0, 0
            for j in range(b.count[gpu]):
                if w.offer_service[b.offer[gpu, j]] == service:
                    carried += b.cap[gpu, j]
                    here += 1
            if b.cover[service] - carried < w.rate[service] * (1 - 1e-12) or standing[service] - here < least[service]:
                needed = True
                break
        if not needed:
            for i in range(b.count[gpu]):
                standing[w.offer_service[b.offer[gpu, i]]] -= 1
            clear(w, b, gpu)
            gone += 1
    return gone


@njit(F8(WORLD, BOARD, F1))
def unserved_cost(w: World, b: Board, need: Floats) -> float:
    """What is left unserved costs, and what each service needs, written into `need`."""
    cost = 0.0
    for service in range(need.shape[0]):
        missing = w.rate[service] - b.cover[service]
        if missing <= 1e-9 * w.rate[service]:
            need[service] = 0.0
            continue
        need[service] = missing
        cost += w.unserved_price[service] * max(missing, 1.0)
    return cost


@njit(F8(WORLD, BOARD, F1, F1))
def to_spare(w: World, b: Board, prices: Floats, spare_of: Floats) -> float:
    """What is carried beyond the need, at the prices: with enough of it together, a GPU is not needed."""
    worth = 0.0
    for service in range(prices.shape[0]):
        over = b.cover[service] - w.rate[service]
        if over > 0.0:
            worth += prices[service] * over * spare_of[service]
    return worth


@njit((BOARD, POOLS, I8))
def restack(b: Board, pools: Pools, pool: int) -> None:
    """List the empty GPUs of a pool, the first on top."""
    count = 0
    for gpu in range(pools.start[pool + 1] - 1, pools.start[pool] - 1, -1):
        if b.count[gpu] == 0 and pools.closed[gpu] == 0:
            pools.empty[pools.start[pool] + count] = gpu
            count += 1
    pools.empties[pool] = count


@njit(F8(WORLD, BOARD, POOLS, POOLS, TABLED, F1, F1, F1, F8, F8, I1, I8, SCRATCH, PATTERN, BOARD, I1))
def attempt(
    w: World, b: Board, pools: Pools, local: Pools, tabled: Tabled, prices: Floats, need: Floats, spare_of: Floats,
    bonus: float, worst: float, apart: Ints, count: int, s: Scratch, p: Pattern, undo: Board, filled: Ints,
) -> float:  # fmt: skip
    """Take the GPUs `apart[:count]` apart and fill anew. Returns what is saved, 0 when all is as before.

    `undo` keeps who stood there; only its first rows are used.
    """
    before = unserved_cost(w, b, need)
    spare = to_spare(w, b, prices, spare_of)
    for place in range(count):
        gpu = apart[place]
        before += cost_of(w, b, pools, gpu, w.watt_price)
        undo.count[place], undo.clock[place] = b.count[gpu], b.clock[gpu]
        for i in range(b.count[gpu]):
            undo.offer[place, i], undo.sm[place, i] = b.offer[gpu, i], b.sm[gpu, i]
            undo.batch[place, i], undo.cap[place, i] = b.batch[gpu, i], b.cap[gpu, i]
        clear(w, b, gpu)
    unserved_cost(w, b, need)
    for pool in range(pools.price.shape[0]):
        top, taken = pools.empties[pool], min(FEW_MORE, pools.empties[pool])
        kept = 0
        for j in range(taken):
            local.empty[local.start[pool] + kept] = pools.empty[pools.start[pool] + top - taken + j]
            kept += 1
        for place in range(count):
            if b.pool[apart[place]] == pool:
                local.empty[local.start[pool] + kept] = apart[place]
                kept += 1
        local.empties[pool] = kept
    done = fill(w, b, local, tabled, prices, need, bonus, worst, s, p, filled)
    after = unserved_cost(w, b, need)
    for place in range(done):
        after += cost_of(w, b, pools, filled[place], w.watt_price)
    saved = before - after
    if saved > 1e-9 or (saved > -1e-9 and to_spare(w, b, prices, spare_of) > spare + 1e-12):
        for pool in range(pools.price.shape[0]):
            restack(b, pools, pool)
        return saved if saved > 1e-9 else 0.0
    for place in range(done):
        clear(w, b, filled[place])
    for place in range(count):
        n = undo.count[place]
        for i in range(n):
            p.offer[i], p.sm[i] = undo.offer[place, i], undo.sm[place, i]
            p.batch[i], p.cap[i] = undo.batch[place, i], undo.cap[place, i]
        p.about[0], p.about[2] = n, undo.clock[place]
        if n > 0:
            put(w, b, apart[place], p)
    return 0.0


@njit(I8(WORLD, BOARD, POOLS, F1, I8, I8, I1, I1))
def neighbourhood(
    w: World, b: Board, pools: Pools, prices: Floats, seed: int, size: int, used: Ints, into: Ints
) -> int:
    """Which GPUs to take apart: one that is worth little for its price, and others that share its services.

    `used` lists the GPUs somebody is on.
    """
    np.random.seed(seed)
    n = used.shape[0]
    if n == 0:
        return 0
    first, least = -1, np.inf
    for _ in range(4):
        gpu = used[np.random.randint(n)]
        worth = 0.0
        for i in range(b.count[gpu]):
            service = w.offer_service[b.offer[gpu, i]]
            over = max(b.cover[service] - w.rate[service], 0.0)
            worth += prices[service] * max(b.cap[gpu, i] - over, 0.0)
        worth /= max(cost_of(w, b, pools, gpu, w.watt_price), 1e-12)
        if worth < least:
            first, least = gpu, worth
    into[0] = first
    count = 1
    tries = 0
    while count < size and tries < 30 * size:
        tries += 1
        gpu = used[np.random.randint(n)]
        taken = False
        for place in range(count):
            taken = taken or into[place] == gpu
        if taken:
            continue
        shares = tries > 20 * size
        for i in range(b.count[gpu]):
            for j in range(b.count[first]):
                if w.offer_service[b.offer[gpu, i]] == w.offer_service[b.offer[first, j]]:
                    shares = True
        if shares or np.random.random() < 0.1:
            into[count] = gpu
            count += 1
    return count
