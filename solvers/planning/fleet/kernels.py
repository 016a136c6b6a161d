"""Compiled: what more instances may carry on GPUs at every SM%, what the residents there bear, and how many fit."""

from __future__ import annotations

from math import floor
from typing import Any, TypeAlias

import numba

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning import pressures
from solvers.planning.fleet.grids import SM

Array: TypeAlias = Any  # numba knows the exact types from the signatures
HALVINGS = 60
SLACK = 1e-9
I8, F8 = numba.int64, numba.float64
I1, I2, F1, F2 = I8[::1], I8[:, ::1], F8[::1], F8[:, ::1]
C16 = numba.complex128  # pressures
C1, C2, B1 = C16[::1], C16[:, ::1], numba.boolean


slow_by = njit(F8(C16, C16), inner=True)(pressures.slow_by)
most_felt = njit(F8(C16), inner=True)(pressures.most_felt)
add_strangers = njit(C16(C16, C16, F8), inner=True)(pressures.add_strangers)
subtract_own = njit(C16(C16, C16), inner=True)(pressures.subtract_own)
is_within = njit(B1(C16, C16, F8), inner=True)(pressures.is_within)
add_parts = njit(F8(C16), inner=True)(pressures.add_parts)


@njit(F8(F1, F8, F8, F8, F8, F8, F8))
def most_exec_ms(
    row: Array, batch: float, rate: float, slo_ms: float, margin: float, utilization: float, now_ms: float
) -> float:  # fmt: skip
    """Returns the longest exec at which an instance may still carry its rate, at least `now_ms`."""
    low, high = now_ms, slo_ms
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        judged = middle * margin
        load = rate * judged / batch / 1000.0
        if load <= utilization * margin and load <= accepted_load(row, slo_ms / judged):
            low = middle
        else:
            high = middle
    return max(low * (1.0 - 1e-9), now_ms)


@njit(
    I8(
        I1, I1, F1, F1, C1, I1, C2,
        F2, F1, I1, F2, C1, F1, C16, F8, F8, F8, F8, F8, F8, I8, F2, I2, F2,
    )
)  # fmt: skip
def caps(
    which: Array, free_sm: Array, free_gib: Array, free_w: Array, beside: Array, first: Array, neighbours: Array,
    exec_ms: Array, memory_gib: Array, batches: Array, rows: Array, pressure: Array, power_w: Array,
    feels: complex, slower: float, thriftier: float, slo_ms: float, margin: float, utilization: float,
    share_pressure: float, least_sm: int, cap: Array, by: Array, exec_of: Array,
) -> int:  # fmt: skip
    """Writes the most that an instance may carry at each SM%, and its batch; 0 if it does not fit or harms a neighbour.

    `which` are the GPUs to examine, from `least_sm` on, which is at least 1; `exec_of` is the exec of the best batch.
    Neighbours of GPU g begin at first[g], each as (exec alone at its clock, sensitivity, the others' pressure, longest
    exec it bears). Returns the number of shapes examined.
    """
    looked = 0
    for at in range(which.shape[0]):
        g = which[at]
        for sm in range(SM):
            cap[at, sm], by[at, sm], exec_of[at, sm] = 0.0, -1, 0.0
            if sm < least_sm or sm > free_sm[g] or power_w[sm] * thriftier > free_w[g]:
                continue
            outside = share_pressure * (free_sm[g] - sm) / 100.0
            bears = True
            for i in range(first[g], first[g + 1]):
                own, others = neighbours[i, 1], neighbours[i, 2] + pressure[sm]
                slow = (1.0 + slow_by(own, others)) * (1.0 + most_felt(own) * outside)
                if neighbours[i, 0].real * slow > neighbours[i, 3].real:
                    bears = False
                    break
            looked += 1
            if not bears:
                continue
            slow = slower * (1.0 + slow_by(feels, beside[g])) * (1.0 + most_felt(feels) * outside)
            for b in range(batches.shape[0]):
                judged = exec_ms[b, sm] * slow * margin
                if memory_gib[b] > free_gib[g] or not judged <= slo_ms:
                    continue
                looked += 1
                load = min(accepted_load(rows[b], slo_ms / judged), utilization * margin)
                rate = 1000.0 * load * batches[b] / judged
                if rate > cap[at, sm]:
                    cap[at, sm], by[at, sm], exec_of[at, sm] = rate, b, exec_ms[b, sm] * slow
    return looked


@njit(
    "Tuple((int64, int64, float64))(float64[:, ::1], float64[::1], float64[::1], int64[::1], float64[:, ::1], float64,"
    " float64, float64, float64, int64, float64, float64, float64, float64)"
)
def smallest_share(
    exec_ms: Array, memory_gib: Array, power_w: Array, batches: Array, rows: Array, slo_ms: float, margin: float,
    utilization: float, slower: float, free_sm: int, free_gib: float, free_w: float, idle: float, part: float,
) -> tuple[int, int, float]:  # fmt: skip
    """Returns batch, SM% and rate of the smallest share that carries the part; of the one with most if none does.

    `slower` is the factor of neighbours and clock; `idle` that of a wholly idle GPU where shares are paid, else 0.
    """
    best_batch, best_sm, most = -1, 0, 0.0
    for sm in range(1, free_sm + 1):
        if power_w[sm] > free_w:
            continue
        factor = slower * (1.0 + idle * (free_sm - sm) / 100.0)
        for b in range(batches.shape[0]):
            ms = exec_ms[b, sm] * factor
            judged = ms * margin
            if not judged <= slo_ms or memory_gib[b] > free_gib:
                continue
            load = min(accepted_load(rows[b], slo_ms / judged) / margin, utilization)
            rate = 1000.0 * load * batches[b] / ms
            if rate > most:
                best_batch, best_sm, most = b, sm, rate
        if most >= part:
            break
    return best_batch, best_sm, most


@njit("int64(int64, float64, float64, float64, float64)", inner=True)
def _limit_count(count: int, cores: float, host_gib: float, cores_each: float, host_gib_each: float) -> int:
    """Returns how many of these a node's CPU cores and host memory allow."""
    if count > 0 and cores_each > 0.0:
        count = min(count, floor(cores / cores_each * (1.0 + SLACK)))
    if count > 0 and host_gib_each > 0.0:
        count = min(count, floor(host_gib / host_gib_each * (1.0 + SLACK)))
    return max(count, 0)


@njit(
    "void(int64[::1], boolean[::1], int64[::1], int64[::1], float64[::1], float64[::1], int64[::1], float64[::1],"
    " float64[::1], int64[::1], float64[::1], float64[::1], int64, int64, float64[:, ::1], int64[::1])"
)
def count_rooms(
    gpus: Array, is_open: Array, node: Array, free_sm: Array, free_gib: Array, free_w: Array, clients: Array,
    pressure: Array, unborne: Array, models: Array, cores: Array, host_gib: Array, most_clients: int,
    same_model: int, shapes: Array, into: Array,
) -> None:  # fmt: skip
    """Writes for each shape how many more of it fit on these GPUs, which are in the order of their nodes.

    A shape is its SM%, memory, watts, pressure, CPU cores and host memory.
    """
    for s in range(shapes.shape[0]):
        sm, gib, watts, more, cores_each, host_gib_each = shapes[s]
        total, here, at = 0, 0, -1
        for k in range(gpus.shape[0]):
            gpu = gpus[k]
            if node[gpu] != at:
                if at >= 0:
                    total += _limit_count(here, cores[at], host_gib[at], cores_each, host_gib_each)
                here, at = 0, node[gpu]
            if not is_open[gpu] or free_sm[gpu] < sm or free_gib[gpu] < gib or free_w[gpu] * (1.0 + SLACK) < watts:
                continue
            if clients[gpu] > 0 and pressure[gpu] + more >= unborne[gpu] - SLACK:
                continue
            most = min(int(free_sm[gpu] // sm), most_clients - clients[gpu], same_model - models[gpu])
            here += max(1, min(most, int(free_gib[gpu] / max(gib, SLACK))))
        if at >= 0:
            total += _limit_count(here, cores[at], host_gib[at], cores_each, host_gib_each)
        into[s] = total
