"""Compiled: how many requests a second an instance may carry, by the product's latency function."""

from __future__ import annotations

import numpy as np

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.fleet.kernels import slow_by, subtract_own
from solvers.planning.pressures import Pressure, Pressures
from solvers.planning.search.arrays import C1, C16, F3, F8, I1, I8, WORLD, TableArrays


@njit((WORLD, I8, I8, C16, F8, F8))
def best_rate(
    w: TableArrays, offer: int, sm: int, pressure: Pressure, clock: float, memory: float
) -> tuple[float, int]:
    """Returns the highest rate of an instance next to neighbours of this pressure, and its batch.

    `clock` is highest clock / clock; `memory` is what the batch's memory may take.
    """
    service, profile = w.offer_service[offer], w.offer_profile[offer]
    slow = 1.0 + slow_by(w.sensitivity[profile], pressure)
    if clock != 1.0:
        slow *= clock ** w.clock_exponent[profile]
    slo, row = w.slo_ms[service], w.percentile_row[service]
    most, by = 0.0, -1
    highest = w.utilization * w.margin
    for b in range(w.batches.shape[0] - 1, -1, -1):  # large batches carry most: few of the others are looked up
        exec_ms = w.exec_ms[profile, b, sm] * slow
        judged = exec_ms * w.margin
        if not judged <= slo or w.memory_gib[profile, b] > memory:
            continue
        each = 1000.0 * w.batches[b] / judged
        if each * highest < most:
            continue
        rate = each * min(accepted_load(w.loads[row, b], slo / judged), highest)
        if rate >= most and rate > 0.0:
            most, by = rate, b
    return min(most, w.most_rate[service]), by


@njit(F8(WORLD, I8, I8, I8), inner=True)
def least_slow(w: TableArrays, site: int, profile: int, sm: int) -> float:
    """Returns highest clock / the highest clock at which an instance alone keeps maxW; 0 if none does."""
    for step in range(w.site_clocks.shape[1]):
        clock = w.site_clocks[site, step]
        if clock == 0.0:
            break
        if w.site_idle_w[site] + w.power_w[profile, sm] * clock ** -w.power_exponent[profile] <= w.site_max_w[site]:
            return float(clock)
    return 0.0


@njit((WORLD, I8, I1, C1, F3))
def rate_table(w: TableArrays, site: int, sms: Ints, levels: Pressures, into: Floats) -> None:
    """Writes the rates of a site's offers at each total pressure and SM%: into[offer, level, place of SM%]."""
    for offer in range(w.site_start[site], w.site_start[site + 1]):
        profile = w.offer_profile[offer]
        for place in range(sms.shape[0]):
            sm = sms[place]
            clock = least_slow(w, site, profile, sm)
            if clock == 0.0:
                continue
            for level in range(levels.shape[0]):
                beside = subtract_own(levels[level], w.pressure[profile, sm])
                rate, _ = best_rate(w, offer, sm, beside, clock, w.site_memory_gib[site])
                into[offer, level, place] = rate


def sm_grid(step: int) -> Ints:
    """Returns the SM% of a coarse table."""
    return np.arange(0, SM, step, dtype=np.int64)
