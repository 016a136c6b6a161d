"""Compiled: what one more instance may carry on a GPU at every SM%, and what those who stand there bear."""

from __future__ import annotations

from typing import Any, TypeAlias

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning.arrays import F1, F2, F8, I1, I8
from solvers.planning.tables import SM

Array: TypeAlias = Any  # numba knows the exact types from the signatures
HALVINGS = 60


@njit(F8(F1, F8, F8, F8, F8, F8, F8))
def most_exec_ms(
    row: Array, batch: float, rate: float, slo_ms: float, margin: float, utilization: float, now_ms: float
) -> float:  # fmt: skip
    """The longest exec at which an instance may still carry its rate; `now_ms` where that is none longer."""
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


@njit((F2, F1, I1, F2, F1, F1, F8, F8, F8, F8, I8, F8, F8, F8, F8, F8, F8, F2, F1, I1))
def caps(
    exec_ms: Array, memory_gib: Array, batches: Array, rows: Array, pressure: Array, power_w: Array,
    feels: float, slower: float, thriftier: float, beside: float, free_sm: int, free_gib: float, free_w: float,
    slo_ms: float, margin: float, utilization: float, share_pressure: float, neighbours: Array, cap: Array, by: Array,
) -> None:  # fmt: skip
    """The most that an instance may carry at each SM%, and by which batch; 0 where it fits not or harms a neighbour.

    A neighbour is (exec alone at its clock, sensitivity, pressure beside it, longest exec it bears).
    """
    for sm in range(SM):
        cap[sm], by[sm] = 0.0, -1
        if sm < 1 or sm > free_sm or power_w[sm] * thriftier > free_w:
            continue
        outside = share_pressure * (free_sm - sm) / 100.0
        bears = True
        for i in range(neighbours.shape[0]):
            slow = (1.0 + neighbours[i, 1] * (neighbours[i, 2] + pressure[sm])) * (1.0 + neighbours[i, 1] * outside)
            if neighbours[i, 0] * slow > neighbours[i, 3]:
                bears = False
                break
        if not bears:
            continue
        slow = slower * (1.0 + feels * beside) * (1.0 + feels * outside)
        for b in range(batches.shape[0]):
            judged = exec_ms[b, sm] * slow * margin
            if memory_gib[b] > free_gib or not judged <= slo_ms:
                continue
            load = min(accepted_load(rows[b], slo_ms / judged), utilization * margin)
            rate = 1000.0 * load * batches[b] / judged
            if rate > cap[sm]:
                cap[sm], by[sm] = rate, b
