"""Compiled: the cost of GPUs with their residents, and of what they leave unserved."""

from __future__ import annotations

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.arrays import BOARD, F1, F8, I1, I8, WORLD, Board, TableArrays
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


@njit((WORLD, BOARD, POOLS, I1, F1, F1))
def costs_of(w: TableArrays, b: Board, pools: Pools, gpus: Ints, costs: Floats, watts: Floats) -> None:
    """Writes the cost and the busy watts of each of these GPUs."""
    for i in range(gpus.shape[0]):
        costs[i] = cost_of(w, b, pools, gpus[i], w.energy_price)
        watts[i] = cost_of(w, b, pools, gpus[i], w.energy_price + 1.0) - costs[i]


@njit(F8(WORLD, BOARD, F1))
def unserved_cost(w: TableArrays, b: Board, need: Floats) -> float:
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
