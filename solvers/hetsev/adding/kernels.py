"""Compiled: the smallest share of a GPU on which an instance carries its part among neighbours."""

from __future__ import annotations

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning.grids import Floats, Ints
from solvers.planning.search.arrays import F1, F2, F8, I1, I8


@njit((F2, F1, F1, I1, F2, F8, F8, F8, F8, I8, F8, F8, F8, F8))
def smallest(
    exec_ms: Floats, memory_gib: Floats, power_w: Floats, batches: Ints, rows: Floats, slo_ms: float, margin: float,
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
