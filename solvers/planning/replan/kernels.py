"""Compiled: checks what fits on a GPU and keeps its SLO there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.fleet.kernels import add_strangers, is_within, slow_by
from solvers.planning.pressures import Pressures
from solvers.planning.search.arrays import BOARD, C16, F1, F8, I1, I2, I8, WORLD, Board, TableArrays
from solvers.planning.search.capacity import best_rate

SUM = 1e-9  # what sums of floats may differ by
LEAST_PRESSURE, MOST_PRESSURE = 0.005, 8.0  # of a newcomer


class Beside(NamedTuple):
    """The parts of a running plan that a board lacks: rates, memory, jobs, and what tenants may still take."""

    rate: Floats  # [GPU, slot]
    memory: Floats  # [GPU, slot] of the instance, at least what its batch needs
    site: Ints  # of each GPU
    price: Floats  # of each GPU
    value: Floats  # of each GPU: its price, and what one more of its pool would save
    job_sm: Ints
    job_memory: Floats
    job_pressure: Pressures
    job_count: Ints
    job_watts: Floats
    most_pressure: Pressures  # beyond it a job on the GPU would miss its deadline
    headroom: Pressures  # of each GPU: how much more of each pressure its residents bear, when last computed
    gpus_left: Floats  # [tenant]
    price_left: Floats  # [tenant]
    least_sm: Ints  # that any batch of each profile was measured at
    most_sm: Ints


_F1, _F2, _I1, _C1 = np.zeros(1), np.zeros((1, 1)), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.complex128)
_typeof: Any = numba.typeof
BESIDE: Any = _typeof(Beside(_F2, _F2, _I1, _F1, _F1, _I1, _F1, _C1, _I1, _F1, _C1, _C1, _F1, _F1, _I1, _I1))
B1 = numba.boolean


@njit(C16(WORLD, BOARD, BESIDE, I8, I8), inner=True)
def felt(w: TableArrays, b: Board, x: Beside, gpu: int, slot: int) -> complex:
    """Returns the pressure on a resident, including that of strangers on a shared GPU."""
    total, free = x.job_pressure[gpu], 100.0 - x.job_sm[gpu]
    for i in range(b.count[gpu]):
        free -= b.sm[gpu, i]
        if i != slot:
            total += w.pressure[w.offer_profile[b.offer[gpu, i]], b.sm[gpu, i]]
    outside = w.share_pressure * max(free, 0.0) / 100.0
    return add_strangers(w.sensitivity[w.offer_profile[b.offer[gpu, slot]]], total, outside)


@njit(F8(WORLD, BOARD, BESIDE, I8, I8), inner=True)
def exec_at(w: TableArrays, b: Board, x: Beside, gpu: int, slot: int) -> float:
    """Returns its execution time among its neighbours, without the margin."""
    profile = w.offer_profile[b.offer[gpu, slot]]
    slow = 1.0 + slow_by(w.sensitivity[profile], felt(w, b, x, gpu, slot))
    if b.clock[gpu] != 1.0:
        slow *= b.clock[gpu] ** w.clock_exponent[profile]
    return float(w.exec_ms[profile, b.batch[gpu, slot], b.sm[gpu, slot]] * slow)


@njit(F8(WORLD, BOARD, BESIDE, I8, I8))
def carries(w: TableArrays, b: Board, x: Beside, gpu: int, slot: int) -> float:
    """Returns the rate that it may carry with its batch."""
    service = w.offer_service[b.offer[gpu, slot]]
    judged = exec_at(w, b, x, gpu, slot) * w.margin
    if not judged <= w.slo_ms[service]:
        return 0.0
    row = w.loads[w.percentile_row[service], b.batch[gpu, slot]]
    load = min(accepted_load(row, w.slo_ms[service] / judged), w.utilization * w.margin)
    return float(1000.0 * load * w.batches[b.batch[gpu, slot]] / judged)


@njit(B1(WORLD, BOARD, BESIDE, I8))
def keeps(w: TableArrays, b: Board, x: Beside, gpu: int) -> bool:
    """Tells if every resident of the GPU may carry its rate."""
    for i in range(b.count[gpu]):  # noqa: SIM110 (compiled)
        if x.rate[gpu, i] > carries(w, b, x, gpu, i) * (1.0 + SUM):
            return False
    return True


@njit(B1(WORLD, BOARD, BESIDE, I8))
def fits(w: TableArrays, b: Board, x: Beside, gpu: int) -> bool:
    """Tells if a GPU keeps every rule but the SLOs."""
    count, site = b.count[gpu], x.site[gpu]
    sms, memory, pressure = x.job_sm[gpu], x.job_memory[gpu], 0j
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
    return is_within(pressure, x.most_pressure[gpu], SUM)


@njit(I8(BOARD, BESIDE, I8, I1))
def roomy(b: Board, x: Beside, least: int, into: Ints) -> int:
    """Lists GPUs in use with at least so many SM% to spare; returns how many."""
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


@njit(F8(WORLD, BOARD, BESIDE, I8, C16), inner=True)
def _find_headroom(w: TableArrays, b: Board, x: Beside, gpu: int, unit: complex) -> float:
    """Returns how much more of one pressure all residents of a GPU bear."""
    was, low, high = x.job_pressure[gpu], LEAST_PRESSURE, MOST_PRESSURE
    feels = 0.0
    for i in range(b.count[gpu]):
        feels = max(feels, slow_by(w.sensitivity[w.offer_profile[b.offer[gpu, i]]], unit))
    if feels == 0.0:
        return float(np.inf)
    x.job_pressure[gpu] = was + low * unit
    if not keeps(w, b, x, gpu):
        low, high = 0.0, 0.0
    while high > 1.05 * low:
        middle = np.sqrt(low * high)
        x.job_pressure[gpu] = was + middle * unit
        if keeps(w, b, x, gpu):
            low = middle
        else:
            high = middle
    x.job_pressure[gpu] = was
    return low


@njit((WORLD, BOARD, BESIDE, I1))
def bear(w: TableArrays, b: Board, x: Beside, gpus: Ints) -> None:
    """Writes how much more pressure these GPUs bear; most residents carry all they may, and bear none."""
    for k in range(gpus.shape[0]):
        gpu = gpus[k]
        if w.share_pressure > 0.0:  # taking a free share also removes the strangers on it
            x.headroom[gpu] = complex(np.inf, np.inf)
            continue
        compute = _find_headroom(w, b, x, gpu, 1 + 0j)
        x.headroom[gpu] = complex(compute, _find_headroom(w, b, x, gpu, 1j))


@njit(I8(I1, I1, I2, I8, I1, I1, I1))
def find(
    offer_service: Ints, counts: Ints, offers: Ints, service: int, gpus: Ints, into_gpu: Ints, into_slot: Ints
) -> int:
    """Lists GPU and slot of each instance of a service on these GPUs; returns how many.

    It takes the arrays that it reads alone: it is called so often that handing over whole boards would take longer.
    """
    count = 0
    for k in range(gpus.shape[0]):
        gpu = gpus[k]
        for slot in range(counts[gpu]):
            if offer_service[offers[gpu, slot]] == service and count < into_gpu.shape[0]:
                into_gpu[count], into_slot[count] = gpu, slot
                count += 1
    return count


@njit((BOARD, BESIDE, I1, I1, I1))
def stack(b: Board, x: Beside, start: Ints, empty: Ints, empties: Ints) -> None:
    """Lists the GPUs of each pool on which nothing runs, the first on top."""
    for pool in range(start.shape[0] - 1):
        count = 0
        for gpu in range(start[pool + 1] - 1, start[pool] - 1, -1):
            if b.count[gpu] == 0 and x.job_count[gpu] == 0:
                empty[start[pool] + count] = gpu
                count += 1
        empties[pool] = count


@njit((WORLD, BOARD, BESIDE, I1, I1, F1, F1, I1))
def capacities(
    w: TableArrays, b: Board, x: Beside, gpus: Ints, slots: Ints, now: Floats, best: Floats, by: Ints
) -> None:
    """Writes what each may carry with its batch, and with the best batch that its memory allows."""
    for k in range(gpus.shape[0]):
        gpu, slot = gpus[k], slots[k]
        offer = b.offer[gpu, slot]
        most = w.most_rate[w.offer_service[offer]]
        now[k] = min(carries(w, b, x, gpu, slot), most)
        rate, batch = best_rate(
            w, offer, b.sm[gpu, slot], felt(w, b, x, gpu, slot), b.clock[gpu], x.memory[gpu, slot] * (1.0 + SUM)
        )
        best[k], by[k] = rate * (1.0 - SUM), batch


@njit((WORLD, BOARD, BESIDE, I1, I1, F1))
def execs(w: TableArrays, b: Board, x: Beside, gpus: Ints, slots: Ints, into: Floats) -> None:
    """Writes the execution times of these residents."""
    for k in range(gpus.shape[0]):
        into[k] = exec_at(w, b, x, gpus[k], slots[k])
