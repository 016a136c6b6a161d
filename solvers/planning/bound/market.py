"""Bounds the worth of GPUs of a kind at given prices, in classes of total pressure with a knapsack each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.planning.bound import kernels
from solvers.planning.bound.lines import TINY, alone, finer, lines, narrowed
from solvers.planning.bound.step_lines import steps_earned
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.search.arrays import TableArrays
from solvers.planning.search.tables import Tables
from solvers.planning.step_prices import StepPrices

Lines = NDArray[np.float32]
MARGIN_SHARE = 0.97  # of the best line: worse ones stay coarse
COLUMN_SHARE = 0.9  # of a GPU's cost: a class worth less gives no columns
SEARCH_TURNS = 8  # knapsacks in one search for a class's own prices


@dataclass
class GpuClass:
    """GPUs whose total pressure is within lo..hi, with their lines and prices."""

    lo: float
    hi: float
    at_lo: Lines  # [offer, SM%]
    at_hi: Lines
    spare_lo: Lines  # what could be carried when a node is lost; without rows where no service must survive that
    spare_hi: Lines
    own: Floats  # (price of pressure, of memory, worth)

    def spare_of(self, rows: Ints, sms: Ints, end: int) -> Floats:
        """Returns what residents could carry at an end of the class when a node is lost; 0 where none must."""
        lines = self.spare_hi if end else self.spare_lo
        return lines[rows, sms].astype(np.float64) if len(lines) else np.zeros(len(rows))


@dataclass(frozen=True)
class ClassPattern:
    """The residents of a GPU at the rates of a class: a column of the linear programme."""

    market: int
    place: int  # of its class; -1: a dedicated service alone
    end: int
    offers: Ints
    sms: Ints
    rates: Floats
    spare: Floats  # what each could carry when a node is lost
    pressure: float
    memory_gib: float
    sm_percent: float


@dataclass
class Market:
    """The GPUs of a site that are paid for in the same way: they are worth the same."""

    number: int
    site: int
    pools: Ints
    share_price: float  # of a whole GPU where shares are paid, else 0
    scale: float  # the order of what a GPU costs
    first: int
    last: int
    service: Ints  # of each offer
    profile: Ints  # of each offer, as a row of what follows
    group: Ints  # of each profile
    turns: Ints  # of each group
    pressure: Floats
    idle: float  # pressure of the SMs that an empty GPU leaves idle, where shares are paid, else 0
    added: Floats  # to a GPU's total by a resident: its pressure less that of the SMs it takes
    memory_gib: Floats  # of its smallest batch
    energy: Floats  # what a request a second costs in energy at least, by SM%
    room_gib: float
    alone: Floats  # what a dedicated service's offer carries, else 0
    alone_spare: Floats  # what it could carry there when a node is lost
    alone_sm: Ints
    classes: list[GpuClass] = field(default_factory=list)


@dataclass(frozen=True)
class KnapsackScratch:
    """The arrays that knapsacks write on; those of a row a profile are shared by all classes."""

    earned_lo: Floats  # [profile, SM%] at the ends of the class last looked at
    earned_hi: Floats
    values: Floats
    best: Floats
    got_profile: Ints
    got_sm: Ints
    about: Floats
    offers: Ints  # of the residents of each answer
    rates: Floats
    spare: Floats


def scratch(markets: list[Market]) -> KnapsackScratch:
    groups = max((len(m.turns) for m in markets), default=0)
    layers = max((int(m.turns.sum()) for m in markets), default=0)
    rows = max((len(m.memory_gib) for m in markets), default=0)
    seen = 2 * SEARCH_TURNS
    return KnapsackScratch(
        np.zeros((rows, SM)), np.zeros((rows, SM)), np.zeros((max(groups, 1), SM)), np.zeros((layers + 1, SM)),
        np.zeros((seen, SM), dtype=np.int64), np.zeros((seen, SM), dtype=np.int64), np.zeros((seen, 5)),
        np.zeros((seen, SM), dtype=np.int64), np.zeros((seen, SM)), np.zeros((seen, SM)),
    )  # fmt: skip


def markets(t: Tables, w: TableArrays, full_ratio: Floats, need: Floats) -> list[Market]:
    """Returns every kind of GPU, without classes yet."""
    policy = t.problem.policy
    by_kind: dict[tuple[int, float], list[int]] = {}
    for number, pool in enumerate(t.pools):
        price = pool.price_per_hour if policy.pricing == "share" else 0.0
        by_kind.setdefault((pool.site, price), []).append(number)
    groups = np.repeat(np.arange(len(t.group_start) - 1), np.diff(t.group_start))
    made: list[Market] = []
    for (site, share_price), pools in sorted(by_kind.items()):
        first, last = int(t.site_start[site]), int(t.site_start[site + 1])
        used, profile = np.unique(t.offer_profile[first:last], return_inverse=True)
        group = np.zeros(len(used), dtype=np.int64)
        group[profile] = groups[first:last] - int(t.site_group[site])
        exec_ms = t.exec_ms[used]
        runs: NDArray[np.bool_] = np.any(np.isfinite(exec_ms), axis=1)
        least = np.where(np.any(runs, axis=1), np.argmax(runs, axis=1), 100)
        turns = np.zeros(int(t.site_group[site + 1] - t.site_group[site]), dtype=np.int64)
        np.maximum.at(turns, group, 100 // np.maximum(least, 1))
        copies = min(policy.same_model_per_gpu, policy.clients_per_gpu)
        rates, spare, sms = np.zeros(last - first), np.zeros(last - first), np.zeros(last - first, dtype=np.int64)
        dedicated_need = np.where(t.is_dedicated, need, 0.0)
        alone(w, full_ratio, dedicated_need, first, last, copies, rates, spare, sms)
        kind = t.site_types[site]
        with np.errstate(invalid="ignore"):
            per_request = np.min(exec_ms / t.batches[None, :, None], axis=1, initial=np.inf) / 1000.0
            watts = t.power_w[used] * np.where(np.isfinite(per_request), per_request, 0.0)
        slowest = kind.clocks_mhz[0] / kind.top_clock_mhz
        falls = np.minimum(1.0, slowest ** (t.power_exponent[used] - t.clock_exponent[used]))
        pressure, idle = np.ascontiguousarray(t.pressure[used]), idle_pressure(t)
        made.append(
            Market(
                number=len(made),
                site=site,
                pools=np.array(pools, dtype=np.int64),
                share_price=share_price,
                scale=max(t.pools[p].price_per_hour for p in pools),
                first=first,
                last=last,
                service=t.offer_service[first:last].copy(),
                profile=profile.astype(np.int64),
                group=group,
                turns=np.minimum(turns, copies),
                pressure=pressure,
                idle=idle,
                added=pressure - idle * np.arange(SM) / 100.0,
                memory_gib=np.min(t.memory_gib[used], axis=1, initial=np.inf),
                energy=watts * falls[:, None] * policy.energy_price_per_kwh / 1000.0,
                room_gib=kind.memory_gib,
                alone=rates,
                alone_spare=spare,
                alone_sm=sms,
            )
        )
    return made


def idle_pressure(t: Tables) -> float:
    """Returns how much an empty GPU's idle SMs count as pressure; 0 where jobs may take them."""
    policy = t.problem.policy
    return policy.share_pressure if policy.pricing == "share" and not t.problem.jobs else 0.0


def most_pressure(m: Market, s: KnapsackScratch, runs: NDArray[np.bool_]) -> float:
    """Returns the most total pressure that a GPU can have, with that of its idle SMs, ignoring memory."""
    if not len(m.turns):
        return m.idle
    earned = np.where(runs, m.added, 0.0)
    nothing = np.zeros_like(m.pressure)
    found = kernels.knapsack(
        earned, m.group, m.turns, nothing, m.memory_gib, 0.0, 0.0, 0.0, s.values, s.best, s.got_profile[0], s.got_sm[0],
        s.about[0],
    )  # fmt: skip
    return (m.idle + float(found)) * (1 + 1e-9)


def new_class(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, m: Market, lo: float, hi: float
) -> GpuClass:
    """Makes a class with its lines; dedicated services have need 0 here, and all that may be lost no spare need."""
    count = m.last - m.first
    spare = count if spare_need.any() else 0
    ends = [np.zeros((size, SM), np.float32) for size in (count, count, spare, spare)]
    lines(w, full_ratio, need, spare_need, m.first, m.last, 1.0, lo, hi, *ends)
    return GpuClass(lo, hi, ends[0], ends[1], ends[2], ends[3], np.zeros(3))


def part_of_class(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, m: Market, c: GpuClass,
    of: tuple[float, float], prices: Floats, steps: StepPrices,
) -> tuple[GpuClass, int]:  # fmt: skip
    """Returns a part of a class, with finer lines where that counts, and how many lines it looked at."""
    lo, hi = of
    first, last = (lo - c.lo) / (c.hi - c.lo), (hi - c.lo) / (c.hi - c.lo)
    ends: list[Lines] = []
    for left, right, least in ((c.at_lo, c.at_hi, TINY), (c.spare_lo, c.spare_hi, 0.0)):
        ends += [np.empty_like(left), np.empty_like(left)]
        narrowed(c.at_lo, m.profile, m.pressure, hi, first, last, least, left, right, *ends[-2:])
    looked = finer(
        w, steps, full_ratio, need, spare_need, prices, m.first, 1.0, lo, hi, m.profile, m.energy, m.pressure,
        MARGIN_SHARE, *ends,
    )  # fmt: skip
    return GpuClass(lo, hi, ends[0], ends[1], ends[2], ends[3], c.own.copy()), looked


def best_alone(m: Market, prices: Floats, steps: StepPrices) -> tuple[float, int]:
    """Returns the worth of a GPU to a dedicated service, and the offer.

    Steps count the GPU's instances as one: rounded together, all GPUs of a service fill no fewer than its rate does.
    """
    if not len(m.alone) or not m.alone.any():
        return 0.0, -1
    earned = prices[m.service] * m.alone
    steps_earned(steps, m.service, m.alone, earned)
    earned += steps.spare[m.service] * m.alone_spare
    at = int(np.argmax(earned))
    return float(earned[at]) - m.share_price, at


def draw_earned(m: Market, prices: Floats, steps: StepPrices, s: KnapsackScratch, c: GpuClass) -> None:
    """Writes what profiles earn at the ends of a class where knapsacks read it."""
    rows = len(m.memory_gib)
    kernels.envelopes(
        steps, prices, m.service, m.profile, m.energy, m.pressure, c.lo, c.hi, c.at_lo, c.at_hi, c.spare_lo,
        c.spare_hi, s.earned_lo[:rows], s.earned_hi[:rows],
    )  # fmt: skip


def look(
    m: Market, prices: Floats, steps: StepPrices, s: KnapsackScratch, enough: float, tolerance: float, turns: int
) -> tuple[float, list[Any]]:
    """Returns the worth of a GPU of this market, and the patterns found on the way.

    Every class gets a bound at its own prices; the one that decides is searched until another does.
    """
    found: list[Any] = []
    worths, turns_left = np.zeros(len(m.classes)), np.full(len(m.classes), turns)
    for place, c in enumerate(m.classes):
        draw_earned(m, prices, steps, s, c)
        found += search(m, prices, steps, s, place, enough, tolerance, 1)
        worths[place] = c.own[2]
    floor, drawn = max(enough, best_alone(m, prices, steps)[0]), len(m.classes) - 1
    while len(worths):
        place = int(np.argmax(worths))
        if worths[place] <= floor or turns_left[place] <= 0:
            break
        rest = np.delete(worths, place)
        target = max(floor, float(rest.max(initial=0.0)) - tolerance)
        if place != drawn:
            draw_earned(m, prices, steps, s, m.classes[place])
            drawn = place
        found += search(m, prices, steps, s, place, target, tolerance, SEARCH_TURNS)
        turns_left[place] -= SEARCH_TURNS
        if m.classes[place].own[2] >= worths[place]:
            turns_left[place] = 0
        worths[place] = min(worths[place], m.classes[place].own[2])
    return max(float(worths.max(initial=0.0)), best_alone(m, prices, steps)[0], 0.0), found


def search(
    m: Market, prices: Floats, steps: StepPrices, s: KnapsackScratch, place: int, target: float, tolerance: float,
    most: int,
) -> list[Any]:  # fmt: skip
    """Improves the own prices of a class, whose earnings are drawn; returns the patterns found."""
    c, rows = m.classes[place], len(m.memory_gib)
    count = kernels.worth(
        s.earned_lo[:rows], s.earned_hi[:rows], m.group, m.turns, m.added, m.memory_gib, c.lo - m.idle, c.hi - m.idle,
        m.room_gib, m.share_price, m.scale, target, tolerance, most, c.own, s.values, s.best, s.got_profile, s.got_sm,
        s.about,
    )  # fmt: skip
    if c.own[2] < COLUMN_SHARE * target:
        return []  # no price nearby makes it decide
    kernels.residents(
        steps, prices, m.service, m.profile, m.energy, m.pressure, c.lo, c.hi, c.at_lo, c.at_hi, c.spare_lo,
        c.spare_hi, count, s.about, s.got_profile, s.got_sm, s.offers, s.rates, s.spare,
    )  # fmt: skip
    return [
        ClassPattern(
            m.number, place, int(end), s.offers[i, : int(n)] + m.first, s.got_sm[i, : int(n)].copy(),
            s.rates[i, : int(n)].copy(), s.spare[i, : int(n)].copy(), m.idle + pressed, held, used,
        )
        for i, (n, pressed, held, used, end) in enumerate(s.about[:count].tolist())
        if n > 0
    ]  # fmt: skip
