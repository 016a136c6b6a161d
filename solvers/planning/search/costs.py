"""Compiled: the cost of GPUs with their residents, and of what they leave unserved."""

from __future__ import annotations

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.arrays import BOARD, F1, F8, HOME, I1, I8, WORLD, Board, Home, TableArrays
from solvers.planning.search.fill import POOLS, Pools


@njit(F8(WORLD, BOARD, POOLS, I8, F8), inner=True)
def cost_of(w: TableArrays, b: Board, pools: Pools, gpu: int, watt_price: float) -> float:
    """Returns the cost of a GPU with its residents, at a price of busy watts."""
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
    return float(pools.price[pool] + pools.sm_price[pool] * used + watt_price * watts)


@njit(F8(BOARD, HOME, I8), inner=True)
def churn_of(b: Board, home: Home, gpu: int) -> float:
    """Returns the churn of a GPU's residents: of all that does not run there now with the same share."""
    if home.sm_price[gpu] == 0.0:
        return 0.0
    churn, kept = 0.0, 0
    for i in range(b.count[gpu]):
        place = -1
        for j in range(home.count[gpu]):
            same = home.offer[gpu, j] == b.offer[gpu, i] and home.sm[gpu, j] == b.sm[gpu, i]
            if same and kept & (1 << j) == 0:
                place = j
                break
        if place < 0:
            churn += home.price + home.sm_price[gpu] * b.sm[gpu, i]
        else:
            kept |= 1 << place
    return float(churn)


@njit(F8(BOARD, HOME))
def churn_on(b: Board, home: Home) -> float:
    """Returns the churn of a board."""
    churn = 0.0
    for gpu in range(home.count.shape[0]):
        churn += churn_of(b, home, gpu)
    return churn


@njit((WORLD, BOARD, POOLS, I1, F1, F1))
def costs_of(w: TableArrays, b: Board, pools: Pools, gpus: Ints, costs: Floats, watts: Floats) -> None:
    """Writes the cost and the busy watts of each of these GPUs."""
    for i in range(gpus.shape[0]):
        costs[i] = cost_of(w, b, pools, gpus[i], w.energy_price)
        watts[i] = cost_of(w, b, pools, gpus[i], w.energy_price + 1.0) - costs[i]


@njit(F8(WORLD, BOARD, F1))
def price_unserved(w: TableArrays, b: Board, need: Floats) -> float:
    """Returns the cost of what is unserved, and writes into `need` what each service needs."""
    cost = 0.0
    for service in range(need.shape[0]):
        missing = w.rate[service] - b.cover[service]
        if missing <= 1e-9 * w.rate[service]:
            need[service] = 0.0
            continue
        need[service] = missing
        cost += w.unserved_price[service] * max(missing, 1.0)
    return cost


@njit((WORLD, BOARD, F1, F1, F8, I1, I8, F1, F1), inner=True)
def balance(
    w: TableArrays, b: Board, prices: Floats, missed: Floats, floor: float, services: Ints, count: int, need: Floats,
    into: Floats,
) -> None:  # fmt: skip
    """Writes what these services need; into: the cost of that, and the worth of what is carried beyond the need.

    A missing request a second costs `missed`, and at least as much as `floor` of them.
    """
    into[0], into[1] = 0.0, 0.0
    for place in range(count):
        service = services[place]
        missing = w.rate[service] - b.cover[service]
        need[service] = 0.0
        if missing > 1e-9 * w.rate[service]:
            need[service] = missing
            into[0] += missed[service] * max(missing, floor)
        elif missing < 0.0:
            into[1] -= prices[service] * missing
