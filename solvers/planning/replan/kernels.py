"""Compiled: what fits and keeps its promise on one GPU, and where one more instance, or a larger one, would."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning.arrays import BOARD, F1, F8, I1, I8, WORLD, Board, World
from solvers.planning.capacity import best_rate
from solvers.planning.tables import Floats, Ints

SUM = 1e-9  # what sums of floats may differ by
LEAST_PRESSURE, MOST_PRESSURE = 0.005, 8.0  # of a newcomer
OPTIONS = 24  # to choose from, with ENOUGH times what is needed between them: more are not looked for
ENOUGH = 4.0


class Beside(NamedTuple):
    """What a running plan has beyond a board: rates, memory asked for, jobs, and what tenants may still take."""

    rate: Floats  # [GPU, slot]
    memory: Floats  # [GPU, slot] asked for, at least what the batch needs
    site: Ints  # of each GPU
    price: Floats  # of each GPU
    value: Floats  # of each GPU: its price, and what one more of its pool would save
    job_sm: Ints
    job_memory: Floats
    job_pressure: Floats
    job_count: Ints
    job_watts: Floats
    most_pressure: Floats  # beyond it a job on the GPU would miss its deadline
    headroom: Floats  # of each GPU: how much more pressure everybody on it bears, as far as it was last looked at
    gpus_left: Floats  # [tenant]
    price_left: Floats  # [tenant]


class Options(NamedTuple):
    """Where a service could have more: one entry each, from 0 on."""

    gpu: Ints
    slot: Ints  # of the instance that grows; -1 for a new one
    offer: Ints
    sm: Ints
    batch: Ints
    cap: Floats
    score: Floats


_F1, _F2, _I1 = np.zeros(1), np.zeros((1, 1)), np.zeros(1, dtype=np.int64)
_typeof: Any = numba.typeof
BESIDE: Any = _typeof(Beside(_F2, _F2, _I1, _F1, _F1, _I1, _F1, _F1, _I1, _F1, _F1, _F1, _F1, _F1))
OPTIONS_TYPE: Any = _typeof(Options(_I1, _I1, _I1, _I1, _I1, _F1, _F1))
B1 = numba.boolean


@njit(F8(WORLD, BOARD, BESIDE, I8, I8))
def felt(w: World, b: Board, x: Beside, gpu: int, slot: int) -> float:
    """The pressure that one resident feels, with what others use of a shared GPU folded in."""
    total, free = x.job_pressure[gpu], 100.0 - x.job_sm[gpu]
    for i in range(b.count[gpu]):
        free -= b.sm[gpu, i]
        if i != slot:
            total += w.pressure[w.offer_profile[b.offer[gpu, i]], b.sm[gpu, i]]
    outside = w.share_pressure * max(free, 0.0) / 100.0
    return float(total + outside * (1.0 + w.sensitivity[w.offer_profile[b.offer[gpu, slot]]] * total))


@njit(F8(WORLD, BOARD, BESIDE, I8, I8))
def exec_at(w: World, b: Board, x: Beside, gpu: int, slot: int) -> float:
    """Its execution time among its neighbours, without the margin."""
    profile = w.offer_profile[b.offer[gpu, slot]]
    slow = 1.0 + w.sensitivity[profile] * felt(w, b, x, gpu, slot)
    if b.clock[gpu] != 1.0:
        slow *= b.clock[gpu] ** w.clock_exponent[profile]
    return float(w.exec_ms[profile, b.batch[gpu, slot], b.sm[gpu, slot]] * slow)


@njit(F8(WORLD, BOARD, BESIDE, I8, I8))
def carries(w: World, b: Board, x: Beside, gpu: int, slot: int) -> float:
    """The rate it may carry with the batch it has."""
    service = w.offer_service[b.offer[gpu, slot]]
    judged = exec_at(w, b, x, gpu, slot) * w.margin
    if not judged <= w.slo_ms[service]:
        return 0.0
    row = w.loads[w.percentile_row[service], b.batch[gpu, slot]]
    load = min(accepted_load(row, w.slo_ms[service] / judged), w.utilization * w.margin)
    return float(1000.0 * load * w.batches[b.batch[gpu, slot]] / judged)


@njit(B1(WORLD, BOARD, BESIDE, I8))
def keeps(w: World, b: Board, x: Beside, gpu: int) -> bool:
    """Whether everybody on the GPU may carry its rate."""
    for i in range(b.count[gpu]):  # noqa: SIM110 (compiled)
        if x.rate[gpu, i] > carries(w, b, x, gpu, i) * (1.0 + SUM):
            return False
    return True


@njit(B1(WORLD, BOARD, BESIDE, I8))
def fits(w: World, b: Board, x: Beside, gpu: int) -> bool:
    """Every rule of a GPU but the SLOs."""
    count, site = b.count[gpu], x.site[gpu]
    sms, memory, pressure = x.job_sm[gpu], x.job_memory[gpu], 0.0
    watts = w.site_idle_w[site] + x.job_watts[gpu]
    if count + x.job_count[gpu] > w.most_clients:
        return False
    for i in range(count):
        offer = b.offer[gpu, i]
        profile, service = w.offer_profile[offer], w.offer_service[offer]
        sms += b.sm[gpu, i]
        memory += x.memory[gpu, i]
        pressure += w.pressure[profile, b.sm[gpu, i]]
        watts += w.power_w[profile, b.sm[gpu, i]] * b.clock[gpu] ** -w.power_exponent[profile]
        alike = 0
        for j in range(count):
            if w.offer_group[b.offer[gpu, j]] == w.offer_group[offer]:
                alike += 1
            if w.dedicated[service] == 1 and w.offer_service[b.offer[gpu, j]] != service:
                return False
        if alike > w.same_model or (w.dedicated[service] == 1 and x.job_count[gpu] > 0):
            return False
    if sms > 100 or memory > w.site_memory_gib[site] * (1.0 + SUM) or watts > w.site_max_w[site] * (1.0 + SUM):
        return False
    return bool(pressure <= x.most_pressure[gpu] + SUM)


@njit(I8(WORLD, BOARD, BESIDE, I8, I1))
def roomy(w: World, b: Board, x: Beside, least: int, into: Ints) -> int:
    """GPUs that services run on with at least so many SM% to spare; how many."""
    count = 0
    for gpu in range(b.count.shape[0]):
        if b.count[gpu] == 0:
            continue
        free = 100 - x.job_sm[gpu]
        for i in range(b.count[gpu]):
            free -= b.sm[gpu, i]
        if free >= least:
            into[count] = gpu
            count += 1
    return count


@njit((WORLD, BOARD, BESIDE, I1))
def bear(w: World, b: Board, x: Beside, gpus: Ints) -> None:
    """How much more pressure these GPUs bear: most residents carry what they may, and bear none."""
    for k in range(gpus.shape[0]):
        gpu = gpus[k]
        if w.share_pressure > 0.0:  # who takes a free share also stills the others who would use it
            x.headroom[gpu] = np.inf
            continue
        was, low, high = x.job_pressure[gpu], LEAST_PRESSURE, MOST_PRESSURE
        x.job_pressure[gpu] = was + low
        if not keeps(w, b, x, gpu):
            low, high = 0.0, 0.0
        while high > 1.05 * low:
            middle = np.sqrt(low * high)
            x.job_pressure[gpu] = was + middle
            if keeps(w, b, x, gpu):
                low = middle
            else:
                high = middle
        x.job_pressure[gpu] = was
        x.headroom[gpu] = low


@njit(I8(WORLD, BOARD, I8, I1, I1, I1))
def find(w: World, b: Board, service: int, gpus: Ints, into_gpu: Ints, into_slot: Ints) -> int:
    """GPU and slot of each instance of a service that stands on these GPUs; how many there are."""
    count = 0
    for k in range(gpus.shape[0]):
        gpu = gpus[k]
        for slot in range(b.count[gpu]):
            if w.offer_service[b.offer[gpu, slot]] == service and count < into_gpu.shape[0]:
                into_gpu[count], into_slot[count] = gpu, slot
                count += 1
    return count


@njit((BOARD, BESIDE, I1, I1, I1))
def stack(b: Board, x: Beside, start: Ints, empty: Ints, empties: Ints) -> None:
    """List the GPUs of each pool that nothing runs on, the first on top."""
    for pool in range(start.shape[0] - 1):
        count = 0
        for gpu in range(start[pool + 1] - 1, start[pool] - 1, -1):
            if b.count[gpu] == 0 and x.job_count[gpu] == 0:
                empty[start[pool] + count] = gpu
                count += 1
        empties[pool] = count


@njit((WORLD, BOARD, BESIDE, I1, I1, F1, F1, I1))
def capacities(w: World, b: Board, x: Beside, gpus: Ints, slots: Ints, now: Floats, best: Floats, by: Ints) -> None:
    """What each may carry with its batch, and with the best one that its memory allows."""
    for k in range(gpus.shape[0]):
        gpu, slot = gpus[k], slots[k]
        offer = b.offer[gpu, slot]
        most = w.most_rate[w.offer_service[offer]]
        now[k] = min(carries(w, b, x, gpu, slot), most)
        rate, batch = best_rate(
            w, offer, b.sm[gpu, slot], felt(w, b, x, gpu, slot), b.clock[gpu], x.memory[gpu, slot] * (1.0 + SUM)
        )
        best[k], by[k] = rate * (1.0 - SUM), batch


@njit(B1(WORLD, BOARD, BESIDE, I8, I8, F8, I8, I8, F8, F8, F8, OPTIONS_TYPE, I8))
def _grow(
    w: World, b: Board, x: Beside, gpu: int, slot: int, before: float, low: int, high: int, memory: float, need: float,
    worth: float, o: Options, at: int,
) -> bool:  # fmt: skip
    """Write the best SM% of low..high for the resident at `slot`, already seated, as option `at`; False if none."""
    offer = b.offer[gpu, slot]
    profile = w.offer_profile[offer]
    while high > low and not np.isfinite(w.exec_ms[profile, :, high]).any():
        high -= 1
    sm_was, memory_was, batch_was = b.sm[gpu, slot], x.memory[gpu, slot], b.batch[gpu, slot]
    b.sm[gpu, slot] = high
    most, _ = best_rate(w, offer, high, felt(w, b, x, gpu, slot), b.clock[gpu], memory)
    target = min(most, before + need) * (1.0 - SUM)
    found, top = False, 0.0
    if target > before * (1.0 + 1e-6):
        bottom, enough = low, high
        while bottom < enough:  # the least SM% that will do
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
                continue  # smaller, and not much better for its SMs: more of what is needed stays open
            b.batch[gpu, slot] = by
            x.memory[gpu, slot] = max(memory_was, w.memory_gib[profile, by])
            if not fits(w, b, x, gpu) or not keeps(w, b, x, gpu):
                continue
            found, top = True, score
            o.gpu[at], o.slot[at], o.offer[at], o.sm[at], o.batch[at] = gpu, slot, offer, sm, by
            o.cap[at], o.score[at] = rate * (1.0 - SUM), score
    b.sm[gpu, slot], x.memory[gpu, slot], b.batch[gpu, slot] = sm_was, memory_was, batch_was
    return found


@njit(F8(WORLD, BOARD, BESIDE, I8))
def _memory_left(w: World, b: Board, x: Beside, gpu: int) -> float:
    left = w.site_memory_gib[x.site[gpu]] - x.job_memory[gpu]
    for i in range(b.count[gpu]):
        left -= x.memory[gpu, i]
    return float(left)


@njit(I8(BOARD, BESIDE, I8))
def _sm_left(b: Board, x: Beside, gpu: int) -> int:
    left = 100 - x.job_sm[gpu]
    for i in range(b.count[gpu]):
        left -= b.sm[gpu, i]
    return int(left)


@njit(I8(WORLD, BOARD, BESIDE, F8, F8, I1, I1, F1, OPTIONS_TYPE))
def larger(
    w: World, b: Board, x: Beside, need: float, worth: float, gpus: Ints, slots: Ints, caps: Floats, o: Options
) -> int:
    """Instances that could carry more with the SMs and memory that their GPUs have left; how many."""
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


@njit(I8(WORLD, BOARD, BESIDE, I8, F8, F8, I1, I8, OPTIONS_TYPE))
def new_ones(
    w: World, b: Board, x: Beside, service: int, need: float, worth: float, gpus: Ints, known: int,
    o: Options,
) -> int:  # fmt: skip
    """GPUs of `gpus` where one more instance of the service fits, after `known` options; how many there are then."""
    count, found = known, 0.0
    tenant = w.service_tenant[service]
    for k in range(gpus.shape[0]):
        if count == o.gpu.shape[0] or (count - known >= OPTIONS and found > ENOUGH * need):
            break
        gpu = gpus[k]
        site, slot, node = x.site[gpu], b.count[gpu], b.node[gpu]
        group = w.service_group[service, site]
        if group < 0 or slot + x.job_count[gpu] >= w.most_clients:
            continue
        alike = 0
        for i in range(slot):
            if w.offer_group[b.offer[gpu, i]] == group:
                alike += 1
            if w.dedicated[w.offer_service[b.offer[gpu, i]]] == 1 or w.offer_service[b.offer[gpu, i]] == service:
                alike = 1000
        if alike >= w.same_model or (w.dedicated[service] == 1 and slot + x.job_count[gpu] > 0):
            continue
        free = _sm_left(b, x, gpu)
        if w.dedicated[service] == 1:
            if x.gpus_left[tenant] < 1.0 or x.price_left[tenant] < x.price[gpu]:
                continue
        elif x.gpus_left[tenant] < free / 100.0 or x.price_left[tenant] < free / 100.0 * x.price[gpu]:
            free = int(100 * min(x.gpus_left[tenant], x.price_left[tenant] / x.price[gpu]))
        memory = _memory_left(w, b, x, gpu)
        if free < 1 or memory <= 0.0:
            continue
        for offer in range(w.group_start[group], w.group_start[group + 1]):
            profile = w.offer_profile[offer]
            if w.offer_service[offer] != service or count == o.gpu.shape[0]:
                continue
            if w.cpu_cores[profile] > b.cpu[node] or w.host_memory_gib[profile] > b.host[node]:
                continue
            b.count[gpu] = slot + 1
            b.offer[gpu, slot], b.sm[gpu, slot], b.batch[gpu, slot] = offer, 0, 0
            x.rate[gpu, slot], x.memory[gpu, slot] = 0.0, 0.0
            low, high = 1, free
            while low < free and not np.isfinite(w.exec_ms[profile, :, low]).any():
                low += 1
            while high >= low and w.pressure[profile, high] > x.headroom[gpu]:
                high -= 1
            if high >= low and _grow(w, b, x, gpu, slot, 0.0, low, high, memory, need, worth, o, count):
                found += o.cap[count]
                o.slot[count] = -1
                count += 1
            b.count[gpu] = slot
    return count


@njit((WORLD, BOARD, BESIDE, I1, I1, F1))
def execs(w: World, b: Board, x: Beside, gpus: Ints, slots: Ints, into: Floats) -> None:
    """Execution times of these residents."""
    for k in range(gpus.shape[0]):
        into[k] = exec_at(w, b, x, gpus[k], slots[k])
