"""Compiled: takes SM% from residents of a pattern that carry more than is needed, for those that carry less.

Patterns are proposed at steps of SM%. A GPU's last residents rarely need exactly such a step.
"""

from __future__ import annotations

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats
from solvers.planning.search.arrays import F1, F8, I8, WORLD, TableArrays
from solvers.planning.search.capacity import best_rate
from solvers.planning.search.pattern import PATTERN, SCRATCH, GpuPattern, PatternScratch, copy_pattern, settle

ENOUGH_SHARE = 1.0 - 1e-12  # of a need


@njit((WORLD, I8, F1, F1, F8, F8, F8, SCRATCH, PATTERN), inner=True)
def trim(
    w: TableArrays, site: int, prices: Floats, need: Floats, bonus: float, cpu: float, host: float, s: PatternScratch,
    p: GpuPattern,
) -> None:  # fmt: skip
    """Takes SM% from residents that carry more than is needed, for those that carry less, where that is worth more.

    Where shares are priced, a freed share slows the others, and nothing is done.
    """
    count, free = int(p.about[0]), 100
    total, memory, is_over = 0j, w.site_memory_gib[site], False
    for i in range(count):
        profile, service = w.offer_profile[p.offer[i]], w.offer_service[p.offer[i]]
        free -= p.sm[i]
        total += w.pressure[profile, p.sm[i]]
        memory -= w.memory_gib[profile, p.batch[i]]
        is_over = is_over or p.cap[i] >= ENOUGH_SHARE * min(need[service], w.most_rate[service])
    if count < 2 or w.share_pressure > 0.0 or not (is_over or free > 0):
        return
    trial, clock = s.trial, p.about[2]
    copy_pattern(p, trial)
    value = 0.0
    for i in range(count):
        service = w.offer_service[p.offer[i]]
        useful = min(p.cap[i], need[service])
        value += prices[service] * (useful + bonus * (p.cap[i] - useful))
    for _ in range(count):
        for i in range(count):  # the least SM% that is enough
            profile, service = w.offer_profile[trial.offer[i]], w.offer_service[trial.offer[i]]
            target = ENOUGH_SHARE * min(need[service], w.most_rate[service])
            if trial.cap[i] < target:
                continue
            beside, room = total - w.pressure[profile, trial.sm[i]], memory + w.memory_gib[profile, trial.batch[i]]
            low, high = 0, trial.sm[i]
            while high - low > 1:
                middle = (low + high) // 2
                if best_rate(w, trial.offer[i], middle, beside, clock, room)[0] >= target:
                    high = middle
                else:
                    low = middle
            rate, by = best_rate(w, trial.offer[i], high, beside, clock, room)
            if high < trial.sm[i] and by >= 0 and rate >= target:
                free += trial.sm[i] - high
                total = beside + w.pressure[profile, high]
                memory = room - w.memory_gib[profile, by]
                trial.sm[i], trial.batch[i], trial.cap[i] = high, by, rate
        who, gain = -1, 0.0
        for i in range(count):
            profile, service = w.offer_profile[trial.offer[i]], w.offer_service[trial.offer[i]]
            if free <= 0 or trial.cap[i] >= min(need[service], w.most_rate[service]) or trial.sm[i] + free > 100:
                continue
            beside, room = total - w.pressure[profile, trial.sm[i]], memory + w.memory_gib[profile, trial.batch[i]]
            rate, by = best_rate(w, trial.offer[i], trial.sm[i] + free, beside, clock, room)
            more = prices[service] * (min(rate, need[service]) - trial.cap[i])
            if by >= 0 and more > gain:
                who, gain = i, more
        if who < 0:
            break
        profile = w.offer_profile[trial.offer[who]]
        total += w.pressure[profile, trial.sm[who] + free] - w.pressure[profile, trial.sm[who]]
        beside = total - w.pressure[profile, trial.sm[who] + free]
        room = memory + w.memory_gib[profile, trial.batch[who]]
        trial.sm[who] += free
        trial.cap[who], trial.batch[who] = best_rate(w, trial.offer[who], trial.sm[who], beside, clock, room)
        memory = room - w.memory_gib[profile, trial.batch[who]]
        free = 0
    is_better = settle(w, site, prices, need, bonus, clock, cpu, host, w.site_memory_gib[site], trial, s.worth) > value
    is_better = is_better and int(trial.about[0]) == count
    for i in range(count):  # what a neighbour gained in pressure must not cost another the last bit of its need
        service = w.offer_service[p.offer[i]]
        target = ENOUGH_SHARE * min(need[service], w.most_rate[service])
        is_better = is_better and (p.cap[i] < target or trial.cap[i] >= target)
    if is_better:
        copy_pattern(trial, p)
