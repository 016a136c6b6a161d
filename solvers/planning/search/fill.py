"""Compiled: fills GPUs with patterns, the one worth most for its price first, until nothing more is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.pressures import Pressures
from solvers.planning.search.arrays import BOARD, F1, F8, I1, I8, WORLD, Board, TableArrays
from solvers.planning.search.pattern import PATTERN, SCRATCH, GpuPattern, PatternScratch, activate, best_pattern
from solvers.planning.search.trim import trim

LEAST_WANTED = 0.5  # of a GPU's price, where not all that is needed must be served


class Pools(NamedTuple):
    """The pools as the loops read them."""

    price: Floats  # what one more GPU costs: its price, and its idle energy
    extra: Floats  # what one more GPU of the pool would be worth beyond its price
    sm_price: Floats  # what one SM% costs where shares are priced
    site: Ints
    start: Ints  # [pools + 1] into the GPUs of a board
    empty: Ints  # GPUs without residents: a stack for each pool, from start[pool]
    empties: Ints  # how many
    closed: Ints  # 1 for a GPU of the board that is not to be filled: a job that must stay runs there


class Tabled(NamedTuple):
    """Rates of all offers at some levels of pressure and some SM%."""

    sms: Ints
    levels: Pressures
    rates: Floats  # [offer, level, place]
    top: Floats  # the most that one instance of each service may carry


_I1 = np.zeros(1, dtype=np.int64)
POOLS: Any = numba.typeof(Pools(np.zeros(1), np.zeros(1), np.zeros(1), _I1, _I1, _I1, _I1, _I1))
TABLED: Any = numba.typeof(
    Tabled(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.complex128), np.zeros((1, 1, 1)), np.zeros(1))
)


@njit((WORLD, BOARD, I8, PATTERN))
def put(w: TableArrays, b: Board, gpu: int, p: GpuPattern) -> None:
    """Puts the residents of a pattern on an empty GPU."""
    node = b.node[gpu]
    count = int(p.about[0])
    b.count[gpu] = count
    b.clock[gpu] = p.about[2]
    for i in range(count):
        b.offer[gpu, i], b.sm[gpu, i], b.batch[gpu, i], b.cap[gpu, i] = p.offer[i], p.sm[i], p.batch[i], p.cap[i]
        profile = w.offer_profile[p.offer[i]]
        b.cpu[node] -= w.cpu_cores[profile]
        b.host[node] -= w.host_memory_gib[profile]
        b.cover[w.offer_service[p.offer[i]]] += p.cap[i]


@njit((WORLD, BOARD, I8))
def clear(w: TableArrays, b: Board, gpu: int) -> None:
    """Empties a GPU."""
    node = b.node[gpu]
    for i in range(b.count[gpu]):
        profile = w.offer_profile[b.offer[gpu, i]]
        b.cpu[node] += w.cpu_cores[profile]
        b.host[node] += w.host_memory_gib[profile]
        b.cover[w.offer_service[b.offer[gpu, i]]] -= b.cap[gpu, i]
    b.count[gpu] = 0
    b.clock[gpu] = 1.0


@njit((BOARD, POOLS, I8, I8), inner=True)
def _roomier(b: Board, pools: Pools, pool: int, node: int) -> bool:
    """Tells if the pool's next empty GPU is on another node, which may have room where this one has none."""
    if pools.empties[pool] == 0:
        return False
    return b.node[pools.empty[pools.start[pool] + pools.empties[pool] - 1]] != node


@njit(I8(WORLD, BOARD, POOLS, TABLED, F1, F1, F8, F8, SCRATCH, PATTERN, I1), makes_arrays=True)
def fill(
    w: TableArrays, b: Board, pools: Pools, tabled: Tabled, prices: Floats, need: Floats, bonus: float, worst: float,
    s: PatternScratch, p: GpuPattern, filled: Ints,
) -> int:  # fmt: skip
    """Puts patterns on empty GPUs until `need` is met or no pattern is worth `worst` of its price.

    A service's need only falls, so a pattern found earlier for a pool stays its best while every service on it
    needs what it carries; a stale value is an upper bound, and only the leading pool is computed again.
    Writes the GPUs used into `filled`, and returns how many.
    """
    count_pools = pools.price.shape[0]
    ratio = np.full(count_pools, np.inf)
    fresh = np.zeros(count_pools, dtype=np.int64)
    kept_offer = np.zeros((count_pools, p.offer.shape[0]), dtype=np.int64)
    kept_sm = np.zeros((count_pools, p.offer.shape[0]), dtype=np.int64)
    kept_batch = np.zeros((count_pools, p.offer.shape[0]), dtype=np.int64)
    kept_cap = np.zeros((count_pools, p.offer.shape[0]))
    kept_clock = np.ones(count_pools)
    kept_count = np.zeros(count_pools, dtype=np.int64)
    done = 0
    left, wanted = activate(w, need, s), 0.0
    for service in s.needed[:left]:
        wanted += prices[service] * need[service]
    while left > 0 and done < filled.shape[0]:
        pool = -1
        for q in range(count_pools):
            if pools.empties[q] > 0 and (pool < 0 or ratio[q] > ratio[pool]):
                pool = q
        if pool < 0 or ratio[pool] < worst:
            break
        site = pools.site[pool]
        gpu = pools.empty[pools.start[pool] + pools.empties[pool] - 1]
        node = b.node[gpu]
        if worst > 0.0 and wanted < LEAST_WANTED * worst * pools.price[pool]:
            ratio[pool] = -1.0  # too little is needed for another GPU of this price
            fresh[pool] = 1
            continue
        if fresh[pool] == 0:
            value = best_pattern(
                w, site, prices, need, bonus, b.cpu[node], b.host[node], tabled.sms, tabled.levels,
                tabled.rates, pools.sm_price[pool], s, p,
            )  # fmt: skip
            kept_count[pool], kept_clock[pool] = int(p.about[0]), p.about[2]
            for i in range(kept_count[pool]):
                kept_offer[pool, i], kept_sm[pool, i] = p.offer[i], p.sm[i]
                kept_batch[pool, i], kept_cap[pool, i] = p.batch[i], p.cap[i]
            if kept_count[pool] == 0:
                pools.empties[pool] -= 1  # nothing fits here: too few cores of its node, or no service needs it
                ratio[pool] = np.inf if _roomier(b, pools, pool, node) else -1.0
                continue
            fresh[pool] = 1
            cost = pools.price[pool] + pools.extra[pool]
            sm, memory = 0.0, 0.0
            for i in range(kept_count[pool]):
                sm += kept_sm[pool, i]
                memory += w.memory_gib[w.offer_profile[kept_offer[pool, i]], kept_batch[pool, i]]
                if w.dedicated[w.offer_service[kept_offer[pool, i]]] == 1:
                    sm = 100.0
            cost += pools.sm_price[pool] * max(sm, 100.0 * memory / w.site_memory_gib[site])
            ratio[pool] = value / cost
            continue
        cores, hosted, holds = 0.0, 0.0, True
        for i in range(kept_count[pool]):
            profile, service = w.offer_profile[kept_offer[pool, i]], w.offer_service[kept_offer[pool, i]]
            cores += w.cpu_cores[profile]
            hosted += w.host_memory_gib[profile]
            holds = holds and (need[service] >= kept_cap[pool, i] or fresh[pool] == 1)
        if cores > b.cpu[node] or hosted > b.host[node] or not holds:
            fresh[pool] = 0
            continue
        for i in range(kept_count[pool]):
            p.offer[i], p.sm[i] = kept_offer[pool, i], kept_sm[pool, i]
            p.batch[i], p.cap[i] = kept_batch[pool, i], kept_cap[pool, i]
        p.about[0], p.about[2] = kept_count[pool], kept_clock[pool]
        trim(w, site, prices, need, bonus, b.cpu[node], b.host[node], s, p)
        put(w, b, gpu, p)
        pools.empties[pool] -= 1
        filled[done] = gpu
        done += 1
        for i in range(int(p.about[0])):
            service = w.offer_service[p.offer[i]]
            if need[service] > 0.0:
                wanted -= prices[service] * min(p.cap[i], need[service])
                need[service] -= p.cap[i]
                if need[service] < tabled.top[service]:
                    for other in range(w.service_group.shape[1]):
                        group = w.service_group[service, other]
                        if group >= 0:
                            s.stale[other, group - w.site_group[other]] = 1
                if need[service] <= 1e-9 * w.rate[service]:
                    need[service] = 0.0
                    left -= 1
        for q in range(count_pools):
            if fresh[q] == 1 or fresh[q] == 2:
                fresh[q] = 2
                for i in range(kept_count[q]):
                    if need[w.offer_service[kept_offer[q, i]]] < kept_cap[q, i]:
                        fresh[q] = 0
    return done
