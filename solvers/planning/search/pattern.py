"""Compiled: finds the most valuable set of residents for a GPU at given prices of the services' rates.

A knapsack over SM% (a choice a model) proposes at a guess of the GPU's total pressure. The proposal's worth is then
computed with the pressure that it really makes, so that a poor guess costs value and never correctness.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.fleet.kernels import add_strangers, slow_by
from solvers.planning.pressures import Pressure, Pressures
from solvers.planning.search.arrays import C1, C16, F1, F3, F8, I1, I8, MOST_RESIDENTS, WORLD, TableArrays
from solvers.planning.search.capacity import best_rate

MOST_TURNS = 8  # of the knapsack over one group, where a GPU may hold several instances of a model


class GpuPattern(NamedTuple):
    """Residents of one GPU; `about` is (count, value, highest clock / clock)."""

    offer: Ints
    sm: Ints
    batch: Ints
    cap: Floats
    about: Floats


class PatternScratch(NamedTuple):
    """The arrays that knapsacks write on. Values of a group are valid until a need in it falls."""

    value: Floats  # [site, level, group, place of SM%]
    argument: Ints  # [site, level, group, place]
    stale: Ints  # [site, group]
    best: Floats  # [place]
    choice: Ints  # [turn, place]
    item: Ints  # [place] of SM% that may be chosen, the fewest first
    gain: Floats  # [place] what each of them earns
    needed: Ints  # services that need something
    upcoming: Ints  # for each of these, the place of its next offer
    active: Ints  # offers that are needed: those of a group from its group_start
    active_end: Ints  # [group]
    listed: Ints  # groups with offers that are needed, site by site
    listed_start: Ints  # [sites + 1]
    alone: Ints  # offers of dedicated services that are needed, site by site
    alone_start: Ints  # [sites + 1]
    worth: Floats  # [resident]
    trial: GpuPattern
    proposal: GpuPattern
    latest: GpuPattern


def pattern() -> GpuPattern:
    whole = np.zeros(MOST_RESIDENTS, dtype=np.int64)
    return GpuPattern(whole, whole.copy(), whole.copy(), np.zeros(MOST_RESIDENTS), np.zeros(3))


def scratch(w: TableArrays, levels: int, places: int) -> PatternScratch:
    """Returns arrays for knapsacks over so many levels of pressure and places of SM%."""
    sites = len(w.site_start) - 1
    groups = max(int(np.diff(w.site_group).max(initial=0)), 1)
    offers = max(len(w.offer_service), 1)
    return PatternScratch(
        np.zeros((sites, levels, groups, places)),
        np.zeros((sites, levels, groups, places), dtype=np.int64),
        np.zeros((sites, groups), dtype=np.int64),
        np.zeros(places),
        np.zeros((groups * MOST_TURNS, places), dtype=np.int64),
        np.zeros(places, dtype=np.int64),
        np.zeros(places),
        np.zeros(len(w.rate), dtype=np.int64),
        np.zeros(len(w.rate), dtype=np.int64),
        np.zeros(offers, dtype=np.int64),
        np.zeros(len(w.group_start), dtype=np.int64),
        np.zeros(len(w.group_start), dtype=np.int64),
        np.zeros(sites + 1, dtype=np.int64),
        np.zeros(offers, dtype=np.int64),
        np.zeros(sites + 1, dtype=np.int64),
        np.zeros(MOST_RESIDENTS),
        pattern(),
        pattern(),
        pattern(),
    )


PATTERN: Any = numba.typeof(pattern())
_I1 = np.zeros(1, dtype=np.int64)
_NONE = PatternScratch(
    np.zeros((1, 1, 1, 1)), np.zeros((1, 1, 1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64), np.zeros(1),
    np.zeros((1, 1), dtype=np.int64), _I1, np.zeros(1), _I1, _I1, _I1, _I1, _I1, _I1, _I1, _I1, np.zeros(1), pattern(),
    pattern(), pattern(),
)  # fmt: skip
SCRATCH: Any = numba.typeof(_NONE)


@njit((WORLD, I8, F1, F1, F8, F8, F8, F8, F8, PATTERN, F1), inner=True)
def settle(
    w: TableArrays, site: int, prices: Floats, need: Floats, bonus: float, clock: float,
    cpu: float, host: float, memory: float, p: GpuPattern, worth: Floats,
) -> float:  # fmt: skip
    """Makes a proposal valid: exact rates, without what does not fit, the least worth first. Returns its value."""
    count = int(p.about[0])
    while True:
        total = 0j
        for i in range(count):
            total += w.pressure[w.offer_profile[p.offer[i]], p.sm[i]]
        free_sm = 100.0
        for i in range(count):
            free_sm -= p.sm[i]
        outside = w.share_pressure * free_sm / 100.0
        value, used, cores, hosted = 0.0, 0.0, 0.0, 0.0
        watts = w.site_idle_w[site]
        for i in range(count):
            profile = w.offer_profile[p.offer[i]]
            beside = total - w.pressure[profile, p.sm[i]]
            beside = add_strangers(w.sensitivity[profile], beside, outside)
            rate, by = best_rate(w, p.offer[i], p.sm[i], beside, clock, memory)
            service = w.offer_service[p.offer[i]]
            p.cap[i], p.batch[i] = rate, by
            useful = min(rate, need[service])
            worth[i] = prices[service] * (useful + bonus * (rate - useful))
            value += worth[i]
            if by >= 0:
                used += w.memory_gib[profile, by]
            cores += w.cpu_cores[profile]
            hosted += w.host_memory_gib[profile]
            draws = w.power_w[profile, p.sm[i]] * clock ** -w.power_exponent[profile]
            watts += draws
            worth[i] -= w.watt_price * draws
            value -= w.watt_price * draws
        while used > memory:  # smaller batches, where they cost least
            who, to, loss, rate_to = -1, -1, np.inf, 0.0
            for i in range(count):
                if p.batch[i] < 0:
                    continue
                profile, service = w.offer_profile[p.offer[i]], w.offer_service[p.offer[i]]
                has = w.memory_gib[profile, p.batch[i]]
                beside = total - w.pressure[profile, p.sm[i]]
                beside = add_strangers(w.sensitivity[profile], beside, outside)
                rate, by = best_rate(w, p.offer[i], p.sm[i], beside, clock, has * (1 - 1e-9))
                if by < 0:
                    continue
                lost = prices[service] * (min(p.cap[i], need[service]) - min(rate, need[service]))
                lost /= has - w.memory_gib[profile, by]
                if lost < loss:
                    who, to, loss, rate_to = i, by, lost, rate
            if who < 0:
                break
            profile, service = w.offer_profile[p.offer[who]], w.offer_service[p.offer[who]]
            used += w.memory_gib[profile, to] - w.memory_gib[profile, p.batch[who]]
            p.batch[who], p.cap[who] = to, rate_to
            useful = min(rate_to, need[service])
            value -= worth[who]
            worth[who] = prices[service] * (useful + bonus * (rate_to - useful))
            worth[who] -= w.watt_price * w.power_w[profile, p.sm[who]] * clock ** -w.power_exponent[profile]
            value += worth[who]
        least = -1
        for i in range(count):
            if w.apart[w.offer_service[p.offer[i]]] == 1:  # instances that are wanted on several GPUs
                for j in range(i):
                    if w.offer_service[p.offer[j]] == w.offer_service[p.offer[i]]:
                        worth[i] = 0.0
        for i in range(count):
            if p.batch[i] < 0 or worth[i] <= 0.0:
                least = i
                break
            if least < 0 or worth[i] < worth[least]:
                least = i
        if count == 0:
            break
        fits = free_sm >= 0.0 and used <= memory and cores <= cpu and hosted <= host and watts <= w.site_max_w[site]
        if fits and p.batch[least] >= 0 and worth[least] > 0.0:
            break
        count -= 1
        p.offer[least], p.sm[least] = p.offer[count], p.sm[count]
    p.about[0] = count
    p.about[1] = value if count > 0 else 0.0
    p.about[2] = clock
    return p.about[1]


@njit((WORLD, I8, F1, PATTERN, F1))
def settle_whole(w: TableArrays, site: int, prices: Floats, p: GpuPattern, worth: Floats) -> None:
    """Makes a proposal valid on an empty GPU at its highest clock, whatever its node has left."""
    settle(w, site, prices, w.rate, 0.0, 1.0, np.inf, np.inf, w.site_memory_gib[site], p, worth)


@njit(F8(WORLD, I8, PATTERN), inner=True)
def watts_of(w: TableArrays, site: int, p: GpuPattern) -> float:
    """Returns the watts of a GPU with these residents busy at the highest clock."""
    watts = w.site_idle_w[site]
    for i in range(int(p.about[0])):
        watts += w.power_w[w.offer_profile[p.offer[i]], p.sm[i]]
    return watts


@njit(I8(WORLD, F1, SCRATCH), inner=True)
def activate(w: TableArrays, need: Floats, s: PatternScratch) -> int:
    """Lists the services that need something, and their offers, whose values are not known yet; returns how many."""
    count = 0
    for service in range(need.shape[0]):
        if need[service] > 0.0:
            s.needed[count], s.upcoming[count] = service, w.service_start[service]
            count += 1
            for at in range(w.service_start[service], w.service_start[service + 1]):
                group = w.offer_group[w.service_offers[at]]
                s.active_end[group] = w.group_start[group]
    listed, alone = 0, 0
    for site in range(s.listed_start.shape[0] - 1):
        s.listed_start[site], s.alone_start[site] = listed, alone
        for place in range(count):
            service, at = s.needed[place], s.upcoming[place]
            while at < w.service_start[service + 1] and w.service_offers[at] < w.site_start[site + 1]:
                offer = w.service_offers[at]
                group = w.offer_group[offer]
                at += 1
                if w.dedicated[service] == 1:
                    s.alone[alone] = offer
                    alone += 1
                    continue
                if s.active_end[group] == w.group_start[group]:
                    s.listed[listed] = group
                    s.stale[site, group - w.site_group[site]] = 1
                    listed += 1
                s.active[s.active_end[group]] = offer
                s.active_end[group] += 1
            s.upcoming[place] = at
    s.listed_start[-1], s.alone_start[-1] = listed, alone
    return count


@njit((WORLD, I8, I8, F1, F1, F8, F3, I8, I8, SCRATCH), inner=True)
def revalue(
    w: TableArrays, site: int, group: int, prices: Floats, need: Floats, bonus: float, table: Floats, levels: int,
    places: int, s: PatternScratch,
) -> None:  # fmt: skip
    """Finds the offer of a group that is worth most at each level and SM% of a site, and its worth."""
    g = group - w.site_group[site]
    s.stale[site, g] = 0
    for level in range(levels):
        value, argument = s.value[site, level, g], s.argument[site, level, g]
        for x in range(places):
            value[x] = 0.0
            argument[x] = -1
        for at in range(w.group_start[group], s.active_end[group]):
            offer = s.active[at]
            service = w.offer_service[offer]
            wanted, price = need[service], prices[service]
            if wanted <= 0.0:
                continue
            for x in range(1, places):
                rate = table[offer, level, x]
                if rate <= 0.0:
                    continue
                useful = min(rate, wanted)
                worth = price * (useful + bonus * (rate - useful))
                if worth > value[x]:
                    value[x], argument[x] = worth, offer
        highest = 0.0
        for x in range(1, places):  # more SM% for no more worth is no choice
            if value[x] <= highest * (1.0 + 1e-12):
                argument[x] = -1
            else:
                highest = value[x]


@njit((WORLD, I8, F1, F1, F8, C16, I1, I8, F3, F8, SCRATCH, PATTERN), inner=True)
def propose(
    w: TableArrays, site: int, prices: Floats, need: Floats, bonus: float, sigma: Pressure, sms: Ints, level: int,
    table: Floats, sm_price: float, s: PatternScratch, p: GpuPattern,
) -> None:  # fmt: skip
    """Solves the knapsack: one choice a model and turn, at a pressure level's rates, with pressure and SMs priced."""
    places = sms.shape[0]
    best, choice = s.best, s.choice
    for x in range(places):
        best[x] = 0.0
    turns = min(w.same_model, MOST_TURNS)
    first, begin, end = w.site_group[site], s.listed_start[site], s.listed_start[site + 1]
    for at in range(begin, end):
        g = s.listed[at] - first
        value, argument = s.value[site, level, g], s.argument[site, level, g]
        items, highest = 0, 0.0
        for y in range(1, places):
            if argument[y] >= 0:
                worth = value[y] - sm_price * sms[y]
                if sigma != 0.0:
                    worth -= slow_by(sigma, w.pressure[w.offer_profile[argument[y]], sms[y]])
                if worth > highest:  # more SM% for no more worth is no choice
                    highest = worth
                    s.item[items], s.gain[items] = y, worth
                    items += 1
        for turn in range(turns):
            taken = choice[g * turns + turn]
            for x in range(places - 1, -1, -1):
                most, by = best[x], 0
                for i in range(items):
                    y = s.item[i]
                    if y > x:
                        break
                    worth = best[x - y] + s.gain[i]
                    if worth > most:
                        most, by = worth, y
                best[x], taken[x] = most, by
    x = 0
    for y in range(1, places):
        if best[y] > best[x]:
            x = y
    alone, alone_offer, alone_place = 0.0, -1, 0
    for at in range(s.alone_start[site], s.alone_start[site + 1]):
        offer = s.alone[at]
        service = w.offer_service[offer]
        for y in range(1, places):
            useful = min(table[offer, 0, y], need[service])
            if prices[service] * useful > alone * (1 + 1e-12):
                alone, alone_offer, alone_place = prices[service] * useful, offer, y
    if alone > best[x]:
        p.offer[0], p.sm[0], p.about[0] = alone_offer, sms[alone_place], 1
        return
    count = 0
    for at in range(end - 1, begin - 1, -1):
        g = s.listed[at] - first
        for turn in range(turns - 1, -1, -1):
            y = choice[g * turns + turn, x]
            if y > 0:
                if count < w.most_clients:
                    p.offer[count], p.sm[count] = s.argument[site, level, g, y], sms[y]
                    count += 1
                x -= y
    p.about[0] = count


@njit((PATTERN, PATTERN), inner=True)
def copy_pattern(a: GpuPattern, b: GpuPattern) -> None:
    """Copies a to b."""
    for i in range(int(a.about[0])):
        b.offer[i], b.sm[i], b.batch[i], b.cap[i] = a.offer[i], a.sm[i], a.batch[i], a.cap[i]
    for i in range(a.about.shape[0]):
        b.about[i] = a.about[i]


@njit((PATTERN, PATTERN), inner=True)
def is_same(a: GpuPattern, b: GpuPattern) -> bool:
    """Tells if two patterns have the same residents with the same SM%, in the same order."""
    same = a.about[0] == b.about[0]
    for i in range(int(a.about[0])):
        same = same and a.offer[i] == b.offer[i] and a.sm[i] == b.sm[i]
    return same


@njit(C16(WORLD, F1, F1, PATTERN), inner=True)
def price_of_pressure(w: TableArrays, prices: Floats, need: Floats, p: GpuPattern) -> complex:
    """Returns what one more unit of pressure, on compute and on bandwidth, takes from the worth of these residents."""
    total, compute, bandwidth = 0j, 0.0, 0.0
    for i in range(int(p.about[0])):
        total += w.pressure[w.offer_profile[p.offer[i]], p.sm[i]]
    for i in range(int(p.about[0])):
        profile, service = w.offer_profile[p.offer[i]], w.offer_service[p.offer[i]]
        feels = w.sensitivity[profile]
        beside = total - w.pressure[profile, p.sm[i]]
        lost = prices[service] * min(p.cap[i], need[service]) / (1.0 + slow_by(feels, beside))
        compute += lost * feels.real
        bandwidth += lost * feels.imag
    return complex(compute, bandwidth)


@njit((WORLD, I8, F1, F1, F8, F8, F8, I1, F3, SCRATCH, PATTERN), inner=True)
def one_alone(
    w: TableArrays, site: int, prices: Floats, need: Floats, bonus: float, cpu: float, host: float, sms: Ints,
    table: Floats, s: PatternScratch, p: GpuPattern,
) -> None:  # fmt: skip
    """Finds the best single resident, for a GPU whose node is too small for all proposals."""
    trial = s.trial
    for offer in range(w.site_start[site], w.site_start[site + 1]):
        service, profile = w.offer_service[offer], w.offer_profile[offer]
        if need[service] <= 0.0 or w.cpu_cores[profile] > cpu or w.host_memory_gib[profile] > host:
            continue
        most, place = 0.0, -1
        for y in range(1, sms.shape[0]):
            useful = min(table[offer, 0, y], need[service])
            if useful > most * (1 + 1e-12):
                most, place = useful, y
        for step in range(w.site_clocks.shape[1]):
            clock = w.site_clocks[site, step]
            if clock == 0.0 or place < 0:
                break
            trial.offer[0], trial.sm[0], trial.about[0] = offer, sms[place], 1
            value = settle(w, site, prices, need, bonus, clock, cpu, host, w.site_memory_gib[site], trial, s.worth)
            if value > p.about[1]:
                copy_pattern(trial, p)


@njit((WORLD, I8, F1, F1, F8, F8, F8, I1, C1, F3, F8, SCRATCH, PATTERN), inner=True)
def best_pattern(
    w: TableArrays, site: int, prices: Floats, need: Floats, bonus: float, cpu: float, host: float,
    sms: Ints, levels: Pressures, table: Floats, sm_price: float, s: PatternScratch, p: GpuPattern,
) -> float:  # fmt: skip
    """Finds the best valid pattern over all levels of pressure, each also with pressure at the price it then has.

    If watts have a price, or are too many for the board, it tries lower clocks, too.
    """
    memory = w.site_memory_gib[site]
    p.about[0], p.about[1], p.about[2] = 0.0, 0.0, 1.0
    trial, proposal = s.trial, s.proposal
    for at in range(s.listed_start[site], s.listed_start[site + 1]):
        group = s.listed[at]
        if s.stale[site, group - w.site_group[site]] == 1:
            revalue(w, site, group, prices, need, bonus, table, levels.shape[0], sms.shape[0], s)
    latest = s.latest
    latest.about[0], price = -1.0, 0j
    for level in range(levels.shape[0]):
        sigma = 0j
        for _ in range(2):
            propose(w, site, prices, need, bonus, sigma, sms, level, table, sm_price, s, proposal)
            if not is_same(proposal, latest):  # or it is known what it is worth, and the price of its pressure
                copy_pattern(proposal, latest)
                slower = w.watt_price > 0.0 or watts_of(w, site, proposal) > w.site_max_w[site]
                price = 0j
                for step in range(w.site_clocks.shape[1]):
                    clock = w.site_clocks[site, step]
                    if clock == 0.0 or (step > 0 and not slower):
                        break
                    copy_pattern(proposal, trial)
                    value = settle(w, site, prices, need, bonus, clock, cpu, host, memory, trial, s.worth)
                    if value > p.about[1]:
                        copy_pattern(trial, p)
                    if step == 0:
                        price = price_of_pressure(w, prices, need, trial)
            sigma = price
            if proposal.about[0] <= 1.0:
                break
    if p.about[0] == 0.0:
        one_alone(w, site, prices, need, bonus, cpu, host, sms, table, s, p)
    return p.about[1]
