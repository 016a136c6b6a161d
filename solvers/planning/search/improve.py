"""Compiled: empties a few GPUs and refills them, many times; keeps what is cheaper or has more to spare."""

from __future__ import annotations

import numpy as np

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.arrays import BOARD, F1, F8, HOME, I1, I8, WORLD, Board, Home, TableArrays
from solvers.planning.search.costs import balance, churn_of, cost_of, price_unserved
from solvers.planning.search.fill import POOLS, TABLED, Pools, Tabled, clear, fill, put
from solvers.planning.search.pattern import PATTERN, SCRATCH, GpuPattern, PatternScratch

FEW_MORE = 4  # empty GPUs of each pool that may be used besides those emptied
OPENED_SHARE = 0.3  # of the pools: so many offer empty GPUs to a try, since each pool costs time
TAKEN = 2  # services that lack something, in each try, where that is allowed
MOST_APART = 3  # GPUs at once
NOISE = 0.1  # of prices, from try to try
MORE_IS_WORTH = 0.4  # of its price, at most, when a GPU is filled: what is carried beyond the need
LOOKS = 30  # for a GPU that is worth little
TIMES = 10  # to look for each other GPU
STRANGERS = 0.5  # of the others may be any GPU; the rest held a service of the first
URGENT = 100.0  # times its price, at most, for a service that got too little
SPARE_IS_WORTH = 0.5  # of its price: carrying more than is needed now may free a GPU later


@njit(I8(WORLD, BOARD, I1, I1, I1))
def empty_spared(w: TableArrays, b: Board, order: Ints, least: Ints, standing: Ints) -> int:
    """Empties the GPUs in `order` that no service needs; returns how many. `standing` counts instances a service."""
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


@njit((BOARD, POOLS, I8))
def restack(b: Board, pools: Pools, pool: int) -> None:
    """Lists the empty GPUs of a pool, the first on top."""
    count = 0
    for gpu in range(pools.start[pool + 1] - 1, pools.start[pool] - 1, -1):
        if b.count[gpu] == 0 and pools.closed[gpu] == 0:
            pools.empty[pools.start[pool] + count] = gpu
            count += 1
    pools.empties[pool] = count


@njit((BOARD, I8, BOARD, I8), inner=True)
def remember(b: Board, gpu: int, undo: Board, place: int) -> None:
    """Copies the residents of a GPU."""
    undo.count[place], undo.clock[place] = b.count[gpu], b.clock[gpu]
    for i in range(b.count[gpu]):
        undo.offer[place, i], undo.sm[place, i] = b.offer[gpu, i], b.sm[gpu, i]
        undo.batch[place, i], undo.cap[place, i] = b.batch[gpu, i], b.cap[gpu, i]


@njit((WORLD, BOARD, I8, BOARD, I8, PATTERN), inner=True)
def bring_back(w: TableArrays, b: Board, gpu: int, undo: Board, place: int, p: GpuPattern) -> None:
    """Puts the copied residents back on their GPU."""
    count = undo.count[place]
    for i in range(count):
        p.offer[i], p.sm[i] = undo.offer[place, i], undo.sm[place, i]
        p.batch[i], p.cap[i] = undo.batch[place, i], undo.cap[place, i]
    p.about[0], p.about[2] = count, undo.clock[place]
    if count > 0:
        put(w, b, gpu, p)


@njit(I8(BOARD, POOLS, I1), inner=True)
def list_used(b: Board, pools: Pools, used: Ints) -> int:
    """Lists the GPUs with residents, but for those where a job must stay; returns how many."""
    count = 0
    for gpu in range(b.count.shape[0]):
        if b.count[gpu] > 0 and pools.closed[gpu] == 0:
            used[count] = gpu
            count += 1
    return count


@njit((WORLD, BOARD, I1, I1, I1), inner=True)
def list_holders(w: TableArrays, b: Board, used: Ints, starts: Ints, holders: Ints) -> None:
    """Lists the GPUs with residents of each service, from starts[service]; a GPU once for each of these residents."""
    starts[:] = 0
    for gpu in used:
        for i in range(b.count[gpu]):
            starts[w.offer_service[b.offer[gpu, i]]] += 1
    for service in range(1, starts.shape[0]):  # now where each one ends; entering them makes it where they begin
        starts[service] += starts[service - 1]
    for gpu in used:
        for i in range(b.count[gpu]):
            service = w.offer_service[b.offer[gpu, i]]
            starts[service] -= 1
            holders[starts[service]] = gpu


@njit(I8(WORLD, BOARD, I8, I1, I1), inner=True)
def find_holder(w: TableArrays, b: Board, gpu: int, starts: Ints, holders: Ints) -> int:
    """Returns a GPU that held a service of this one when holders were listed, and still has residents."""
    service = w.offer_service[b.offer[gpu, np.random.randint(b.count[gpu])]]
    listed = starts[service + 1] - starts[service]
    found = int(holders[starts[service] + np.random.randint(listed)]) if listed > 0 else gpu
    return found if b.count[found] > 0 else gpu


@njit(I8(WORLD, BOARD, POOLS, F1, F1, I8, I1, I1, I1, I1), inner=True)
def neighbourhood(
    w: TableArrays, b: Board, pools: Pools, prices: Floats, extra: Floats, size: int, used: Ints, starts: Ints,
    holders: Ints, into: Ints,
) -> int:  # fmt: skip
    """Chooses the GPUs to empty: one that is worth little for its price, and others, most of which share its services.

    `used` lists the GPUs with residents, `holders` those of each service, as they were when the turn began.
    """
    n = used.shape[0]
    first, least = -1, np.inf
    for _ in range(LOOKS):
        gpu = used[np.random.randint(n)]
        worth = 0.0
        for i in range(b.count[gpu]):
            service = w.offer_service[b.offer[gpu, i]]
            over = max(b.cover[service] - w.rate[service], 0.0)
            worth += prices[service] * max(b.cap[gpu, i] - over, 0.0)
        worth /= max(cost_of(w, b, pools, gpu, w.watt_price) + extra[b.pool[gpu]], 1e-12)
        if worth < least:
            first, least = gpu, worth
    into[0] = first
    count = 1
    for _ in range(TIMES * size):
        if count == size:
            break
        if np.random.random() < STRANGERS:
            gpu = used[np.random.randint(n)]
        else:
            gpu = find_holder(w, b, first, starts, holders)
        taken = False
        for place in range(count):
            taken = taken or into[place] == gpu
        if not taken:
            into[count] = gpu
            count += 1
    return count


@njit(
    F8(WORLD, BOARD, HOME, POOLS, POOLS, TABLED, F1, F1, I8, I8, F8, F1, F8, F8, SCRATCH, PATTERN, BOARD, I1),
    makes_arrays=True,
)
def improve(
    w: TableArrays, b: Board, home: Home, pools: Pools, local: Pools, tabled: Tabled,
    prices: Floats, extra: Floats, seed: int, tries: int, heat: float, missed: Floats, floor: float, stop: float,
    s: PatternScratch, p: GpuPattern, undo: Board, filled: Ints,
) -> float:  # fmt: skip
    """Empties two or three GPUs and refills them, so many times, and keeps what is cheaper; returns what that saves.

    What is carried beyond the need counts for a part of its price: enough of it makes a GPU superfluous. At the same
    prices a filling always finds the same, so every try has its own. A board that costs up to about `heat` more is
    kept, too, or the search would end at the first board that no try betters.

    What is missing costs `missed`. Without a `floor` the search may leave something unserved: then a try looks at a
    few services that lack something, not at all of them, and fills no GPU worth less than `stop` of its price.
    """
    np.random.seed(seed)
    used, apart = np.zeros(b.count.shape[0], dtype=np.int64), np.zeros(MOST_APART, dtype=np.int64)
    services = prices.shape[0]
    need, own, short = np.zeros(services), np.zeros(services), np.zeros(services)
    touched, is_touched = np.zeros(services, dtype=np.int64), np.zeros(services, dtype=np.int64)
    before, after = np.zeros(2), np.zeros(2)
    standing = list_used(b, pools, used)
    starts = np.zeros(services + 1, dtype=np.int64)
    holders = np.zeros(b.count[used[:standing]].sum(), dtype=np.int64)
    list_holders(w, b, used[:standing], starts, holders)
    price_unserved(w, b, short)
    total, left_short, lacking = 0.0, 0, 0
    may_lack, lacks = floor == 0.0, np.zeros(services, dtype=np.int64)
    for service in range(services):
        if short[service] > 0.0:
            lacks[lacking] = service
            lacking += 1
        if short[service] > 0.0 and not may_lack:
            touched[left_short] = service
            is_touched[service] = 1
            left_short += 1
    for _ in range(tries):
        if standing == 0:
            break
        size = np.random.randint(2, MOST_APART + 1)
        count = neighbourhood(w, b, pools, prices, extra, size, used[:standing], starts, holders, apart)
        concerned = left_short
        paid = 0.0
        for place in range(count):
            gpu = apart[place]
            for i in range(b.count[gpu]):
                service = w.offer_service[b.offer[gpu, i]]
                if is_touched[service] == 0:
                    is_touched[service] = 1
                    touched[concerned] = service
                    concerned += 1
        if may_lack and lacking > 0:
            for _ in range(TAKEN):
                service = lacks[np.random.randint(lacking)]
                if is_touched[service] == 0:
                    is_touched[service] = 1
                    touched[concerned] = service
                    concerned += 1
        balance(w, b, prices, missed, floor, touched, concerned, need, before)
        for place in range(count):
            paid += cost_of(w, b, pools, apart[place], w.watt_price) + churn_of(b, home, apart[place])
            remember(b, apart[place], undo, place)
            clear(w, b, apart[place])
        balance(w, b, prices, missed, floor, touched, concerned, need, after)
        urgent = URGENT ** np.random.random()
        for place in range(concerned):
            service = touched[place]
            own[service] = prices[service] * np.exp(NOISE * np.random.standard_normal())
            if short[service] > 0.0 and not may_lack:
                own[service] *= urgent
        part = 0.5 * np.random.randint(3)
        for pool in range(pools.price.shape[0]):
            local.extra[pool] = part * extra[pool]
            top, taken = pools.empties[pool], min(FEW_MORE, pools.empties[pool])
            if np.random.random() > OPENED_SHARE:
                taken = 0
            kept = 0
            for j in range(taken):
                local.empty[local.start[pool] + kept] = pools.empty[pools.start[pool] + top - taken + j]
                kept += 1
            for place in range(count):
                if b.pool[apart[place]] == pool:
                    local.empty[local.start[pool] + kept] = apart[place]
                    kept += 1
            local.empties[pool] = kept
        done = fill(w, b, local, tabled, own, need, MORE_IS_WORTH * np.random.random(), stop, s, p, filled)
        pays = 0.0
        for place in range(done):
            pays += cost_of(w, b, pools, filled[place], w.watt_price) + churn_of(b, home, filled[place])
        balance(w, b, prices, missed, floor, touched, concerned, need, after)
        saved = paid + before[0] - pays - after[0]
        if saved + SPARE_IS_WORTH * (after[1] - before[1]) > heat * np.log(1.0 - np.random.random()) + 1e-12:
            total += saved
            changes_lacking, keeps_gpus = False, done == count
            for place in range(concerned):
                service = touched[place]
                changes_lacking = changes_lacking or (short[service] > 0.0) != (need[service] > 0.0)
                short[service] = need[service]
            for place in range(count):
                keeps_gpus = keeps_gpus and b.count[apart[place]] > 0
            if may_lack and changes_lacking:
                lacking = 0
                for service in range(services):
                    if short[service] > 0.0:
                        lacks[lacking] = service
                        lacking += 1
            if not keeps_gpus:
                standing = list_used(b, pools, used)
                for pool in range(pools.price.shape[0]):
                    restack(b, pools, pool)
        else:
            for place in range(done):
                clear(w, b, filled[place])
            for place in range(count):
                bring_back(w, b, apart[place], undo, place, p)
        for place in range(concerned):
            need[touched[place]] = 0.0
            is_touched[touched[place]] = 0
        left_short = 0
        for place in range(concerned):  # those served too little are concerned in every try
            service = touched[place]
            if short[service] > 0.0 and not may_lack:
                touched[left_short] = service
                is_touched[service] = 1
                left_short += 1
    return total
