"""Compiled: finds where another instance of a service would fit and keep its SLO, or a larger one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.fleet.kernels import add_parts, is_within
from solvers.planning.replan.kernels import B1, BESIDE, SUM, Beside, felt, fits, keeps
from solvers.planning.search.arrays import BOARD, C16, F1, F8, I1, I8, WORLD, Board, TableArrays
from solvers.planning.search.capacity import best_rate
from solvers.planning.search.fill import TABLED, Tabled

OPTIONS = 24  # to choose from, with ENOUGH times the need in all: no more are looked for
ENOUGH = 4.0
LIKELY = 0.4  # most guesses are off by less


class SpareOptions(NamedTuple):
    """The places where a service could have more, an entry each from 0 on."""

    gpu: Ints
    slot: Ints  # of the instance that grows; -1 for a new one
    offer: Ints
    sm: Ints
    batch: Ints
    cap: Floats
    score: Floats


_F1, _I1 = np.zeros(1), np.zeros(1, dtype=np.int64)
_typeof: Any = numba.typeof
UniTuple: Any = numba.types.UniTuple
OPTIONS_TYPE: Any = _typeof(SpareOptions(_I1, _I1, _I1, _I1, _I1, _F1, _F1))


@njit(B1(WORLD, BOARD, BESIDE, I8, I8, F8, I8, I8, F8, F8, F8, OPTIONS_TYPE, I8), inner=True)
def _grow(
    w: TableArrays, b: Board, x: Beside, gpu: int, slot: int, before: float, low: int, high: int, memory: float,
    need: float, worth: float, o: SpareOptions, at: int,
) -> bool:  # fmt: skip
    """Writes the best SM% of low..high for the seated resident at `slot` as option `at`; False if there is none."""
    offer = b.offer[gpu, slot]
    profile = w.offer_profile[offer]
    high = max(low, min(high, x.most_sm[profile]))
    sm_was, memory_was, batch_was = b.sm[gpu, slot], x.memory[gpu, slot], b.batch[gpu, slot]
    b.sm[gpu, slot] = high
    most, _ = best_rate(w, offer, high, felt(w, b, x, gpu, slot), b.clock[gpu], memory)
    target = min(most, before + need) * (1.0 - SUM)
    found, top = False, 0.0
    if target > before * (1.0 + 1e-6):
        bottom, enough = low, high
        while bottom < enough:  # the least SM% that is enough
            middle = (bottom + enough) // 2
            b.sm[gpu, slot] = middle
            if best_rate(w, offer, middle, felt(w, b, x, gpu, slot), b.clock[gpu], memory)[0] >= target:
                enough = middle
            else:
                bottom = middle + 1
        for quarter in range(4, 0, -1):
            sm = low + (enough - low) * quarter // 4
            if quarter < 4 and sm == enough:
                continue
            b.sm[gpu, slot] = sm
            rate, by = best_rate(w, offer, sm, felt(w, b, x, gpu, slot), b.clock[gpu], memory)
            gain = min(rate, before + need) - before
            if by < 0 or gain <= 0.0:
                continue
            taken = max(sm - sm_was, 1) * x.value[gpu] / 100.0
            score = worth * gain / taken
            if found and score * 0.85 <= top:
                continue  # smaller, and not much better for its SMs: it would leave more of the need open
            b.batch[gpu, slot] = by
            x.memory[gpu, slot] = max(memory_was, w.memory_gib[profile, by])
            if not fits(w, b, x, gpu) or not keeps(w, b, x, gpu):
                continue
            found, top = True, score
            o.gpu[at], o.slot[at], o.offer[at], o.sm[at], o.batch[at] = gpu, slot, offer, sm, by
            o.cap[at], o.score[at] = rate * (1.0 - SUM), score
    b.sm[gpu, slot], x.memory[gpu, slot], b.batch[gpu, slot] = sm_was, memory_was, batch_was
    return found


@njit(F8(WORLD, BOARD, BESIDE, I8), inner=True)
def _memory_left(w: TableArrays, b: Board, x: Beside, gpu: int) -> float:
    left = w.site_memory_gib[x.site[gpu]] - x.job_memory[gpu]
    for i in range(b.count[gpu]):
        left -= x.memory[gpu, i]
    return float(left)


@njit(I8(BOARD, BESIDE, I8), inner=True)
def _sm_left(b: Board, x: Beside, gpu: int) -> int:
    left = 100 - x.job_sm[gpu]
    for i in range(b.count[gpu]):
        left -= b.sm[gpu, i]
    return int(left)


@njit(I8(WORLD, BOARD, BESIDE, F8, F8, I1, I1, F1, OPTIONS_TYPE), inner=True)
def _larger(
    w: TableArrays,
    b: Board,
    x: Beside,
    need: float,
    worth: float,
    gpus: Ints,
    slots: Ints,
    caps: Floats,
    o: SpareOptions,
) -> int:
    """Lists instances that could carry more with what their GPUs have left; returns how many."""
    count, found = 0, 0.0
    for k in range(gpus.shape[0]):
        if count == o.gpu.shape[0] or (count >= OPTIONS and found > ENOUGH * need):
            break
        gpu, slot = gpus[k], slots[k]
        offer = b.offer[gpu, slot]
        tenant = w.service_tenant[w.offer_service[offer]]
        free = _sm_left(b, x, gpu)
        limit = min(x.gpus_left[tenant], x.price_left[tenant] / x.price[gpu])
        if w.dedicated[w.offer_service[offer]] == 0 and limit < free / 100.0:
            free = int(100 * limit)
        memory = x.memory[gpu, slot] + max(_memory_left(w, b, x, gpu), 0.0)
        low = b.sm[gpu, slot]
        if free < 0:
            continue
        if _grow(w, b, x, gpu, slot, caps[k], low, low + free, memory, need, worth, o, count):
            found += o.cap[count] - caps[k]
            count += 1
    return count


@njit(F8(WORLD, BESIDE, TABLED, I8, I8, C16, I8, I8, F8), inner=True)
def _guess(
    w: TableArrays, x: Beside, tabled: Tabled, gpu: int, offer: int, beside: complex, low: int, high: int, need: float
) -> float:
    """Estimates the most of `need` that 1 of the GPU's value would carry; next to 0 where the table is blank."""
    rates, last = tabled.rates[offer], tabled.levels.shape[0] - 1
    total = add_parts(beside + w.pressure[w.offer_profile[offer], (low + high) // 2])
    above = 0
    while above < last and add_parts(tabled.levels[above]) < total:
        above += 1
    below, calm = max(above - 1, 0), 0.0
    most = add_parts(tabled.levels[above])
    if above > below and total < most:
        calm = (most - total) / (most - add_parts(tabled.levels[below]))
    top = 1e-12
    for place in range(tabled.sms.shape[0]):
        sm = tabled.sms[place]
        if low <= sm <= high:
            rate = rates[above, place] + (rates[below, place] - rates[above, place]) * calm
            top = max(top, min(rate, need) / sm)
    return float(top * 100.0 / x.value[gpu])


@njit(UniTuple(I8, 2)(WORLD, BESIDE, I8, I8, I8), inner=True)
def _range(w: TableArrays, x: Beside, gpu: int, offer: int, free: int) -> tuple[int, int]:
    """Returns the least and the most SM% of `free` that a new instance may take: profiled, and borne by the others."""
    profile = w.offer_profile[offer]
    low, high = x.least_sm[profile], min(free, x.most_sm[profile])
    if not is_within(w.pressure[profile, low], x.headroom[gpu], 0.0):
        return 1, 0
    while high >= low and not is_within(w.pressure[profile, high], x.headroom[gpu], 0.0):
        high -= 1
    return low, high


@njit(I8(WORLD, BOARD, BESIDE, I8, I8), inner=True)
def _free_for(w: TableArrays, b: Board, x: Beside, service: int, gpu: int) -> int:
    """Returns the SM% of a GPU that another instance of the service could take; 0 where it may not run."""
    slot, group = b.count[gpu], w.service_group[service, x.site[gpu]]
    others = slot + x.job_count[gpu]
    if group < 0 or others >= w.most_clients or (w.dedicated[service] == 1 and others > 0):
        return 0
    alike = 0
    for i in range(slot):
        if w.offer_group[b.offer[gpu, i]] == group:
            alike += 1
        if w.dedicated[w.offer_service[b.offer[gpu, i]]] == 1 or w.offer_service[b.offer[gpu, i]] == service:
            return 0
    if alike >= w.same_model:
        return 0
    tenant, free = w.service_tenant[service], _sm_left(b, x, gpu)
    left = min(x.gpus_left[tenant], x.price_left[tenant] / x.price[gpu])
    if w.dedicated[service] == 1:
        return free if left >= 1.0 else 0
    return free if left >= free / 100.0 else int(100 * left)


@njit(I8(WORLD, BOARD, BESIDE, TABLED, I8, F8, F8, F8, I1, I8, OPTIONS_TYPE, F1), inner=True)
def _new_ones(
    w: TableArrays, b: Board, x: Beside, tabled: Tabled, service: int, need: float, worth: float, part: float,
    gpus: Ints, known: int, o: SpareOptions, guesses: Floats,
) -> int:  # fmt: skip
    """Lists GPUs where another instance of the service fits, after `known` options; returns how many there are then.

    The table says where it is likely to be worth the most for its SMs: there we look closely first.
    """
    for k in range(gpus.shape[0]):
        gpu = gpus[k]
        guesses[k] = 0.0
        free = _free_for(w, b, x, service, gpu)
        if free < 1 or _memory_left(w, b, x, gpu) <= 0.0:
            continue
        beside = x.job_pressure[gpu]
        for i in range(b.count[gpu]):
            beside += w.pressure[w.offer_profile[b.offer[gpu, i]], b.sm[gpu, i]]
        group = w.service_group[service, x.site[gpu]]
        for offer in range(w.group_start[group], w.group_start[group + 1]):
            if w.offer_service[offer] == service:
                low, high = _range(w, x, gpu, offer, free)
                if high >= low:
                    guesses[k] = max(guesses[k], _guess(w, x, tabled, gpu, offer, beside, low, high, need))
    count, found = known, 0.0
    while count - known < OPTIONS or found <= ENOUGH * need:
        best = -1
        for k in range(gpus.shape[0]):
            if guesses[k] > 0.0 and (best < 0 or guesses[k] > guesses[best]):
                best = k
        if best < 0 or worth * guesses[best] < LIKELY * part:
            break
        gpu, node, slot = gpus[best], b.node[gpus[best]], b.count[gpus[best]]
        guesses[best] = 0.0
        free, memory = _free_for(w, b, x, service, gpu), _memory_left(w, b, x, gpu)
        group = w.service_group[service, x.site[gpu]]
        for offer in range(w.group_start[group], w.group_start[group + 1]):
            profile = w.offer_profile[offer]
            if w.offer_service[offer] != service or count == o.gpu.shape[0]:
                continue
            if w.cpu_cores[profile] > b.cpu[node] or w.host_memory_gib[profile] > b.host[node]:
                continue
            low, high = _range(w, x, gpu, offer, free)
            b.count[gpu] = slot + 1
            b.offer[gpu, slot], b.sm[gpu, slot], b.batch[gpu, slot] = offer, 0, 0
            x.rate[gpu, slot], x.memory[gpu, slot] = 0.0, 0.0
            if high >= low and _grow(w, b, x, gpu, slot, 0.0, low, high, memory, need, worth, o, count):
                found += o.cap[count]
                o.slot[count] = -1
                count += 1
            b.count[gpu] = slot
        if count == o.gpu.shape[0]:
            break
    return count


@njit(I8(WORLD, BOARD, BESIDE, TABLED, I8, F8, F8, F8, I1, I1, I1, F1, OPTIONS_TYPE, F1))
def list_options(
    w: TableArrays, b: Board, x: Beside, tabled: Tabled, service: int, need: float, worth: float, part: float,
    gpus: Ints, own: Ints, slots: Ints, caps: Floats, o: SpareOptions, guesses: Floats,
) -> int:  # fmt: skip
    """Lists what could carry more of a service: its instances at `own` and `slots`, then new ones on `gpus`.

    Both in one call, because handing the arrays over takes as long as the search.
    """
    count = _larger(w, b, x, need, worth, own, slots, caps, o)
    return int(_new_ones(w, b, x, tabled, service, need, worth, part, gpus, count, o, guesses))
