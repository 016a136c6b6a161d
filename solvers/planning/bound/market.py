"""Bounds the worth of GPUs of a kind at given prices, in classes of total pressures with a knapsack each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from solvers.planning.bound import kernels
from solvers.planning.bound.boxes import CORNERS, ENDS
from solvers.planning.bound.exactly import PRICES, find_dearest, settle
from solvers.planning.bound.lines import TINY, alone, finer, lines, narrowed
from solvers.planning.bound.step_lines import steps_earned
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.pressures import Pressure, Pressures
from solvers.planning.search.arrays import TableArrays
from solvers.planning.search.tables import Tables
from solvers.planning.step_prices import StepPrices

Lines = NDArray[np.float32]
MOST_STEPS = 300_000  # of an exact search in a class, about 6 ms: then its halves are searched
NARROW_FACTOR = 10  # of the steps that an exact search may take where a class is not halved
LEAST_WIDTH_PRESSURE = 0.01  # of a class that is halved
MARGIN_SHARE = 0.97  # of the best line: worse ones stay coarse
COLUMN_SHARE = 0.9  # of a GPU's cost: a class worth less gives no columns
STEPS_A_LINE = 50  # of an exact search, to draw a line again
FINE_SHARE = 1e-4  # of a GPU's price: how well a class's own prices are searched
SEARCH_TURNS = 8  # knapsacks in one search for a class's own prices


@dataclass
class GpuClass:
    """GPUs whose total pressures are within lo..hi, with their lines and prices."""

    lo: Pressure
    hi: Pressure
    at_lo: Lines  # [offer, SM%]
    at_hi: Lines
    spare_lo: Lines  # what could be carried when a node is lost; without rows where no service must survive that
    spare_hi: Lines
    own: Floats  # (price of pressure on compute, on bandwidth, of memory; worth)


@dataclass(frozen=True)
class RealPattern:
    """The residents of a GPU with what each carries there: a column of the linear programme."""

    market: int
    offers: Ints
    sms: Ints
    rates: Floats
    spare: Floats  # what each could carry when a node is lost
    used_share: float  # of the GPU, by SMs or by memory


@dataclass(frozen=True)
class AcceptedRates:
    """What the rates that instances accept are computed from; dedicated services need 0 here."""

    world: TableArrays
    full_ratio: Floats
    need: Floats
    spare_need: Floats  # of those services alone that must survive the loss of a node


@dataclass(frozen=True)
class Members:
    """What belongs to each of some groups."""

    start: Ints
    member: Ints

    @classmethod
    def collect(cls, group: Ints, count: int) -> Members:
        """Collects what belongs to each of `count` groups."""
        member = np.argsort(group, kind="stable")
        return cls(np.searchsorted(group[member], np.arange(count + 1)), member)


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
    profiles: Members  # of each group
    offers: Members  # of each profile
    feels: Pressures  # the sensitivity of each profile
    pressure: Pressures
    idle: float  # pressure on compute of the SMs that an empty GPU leaves idle, where shares are paid, else 0
    added: Pressures  # to a GPU's total by a resident: its pressure less that of the SMs it takes
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

    earned: Floats  # [corner, profile, SM%] of the class last looked at
    values: Floats
    best: Floats
    got_profile: Ints
    got_sm: Ints
    about: Floats
    promised: Floats  # [prices and corners, layers, SM%] in an exact search
    offers: Ints  # of the residents of each answer
    rates: Floats
    spare: Floats

    def earned_of(self, m: Market) -> Floats:
        """Returns the part of `earned` for the profiles of a market."""
        corners, rows = len(self.promised) // PRICES, len(m.memory_gib)
        return self.earned[: corners * rows].reshape(corners, rows, SM)


def scratch(markets: list[Market], *, has_both: bool) -> KnapsackScratch:
    """Returns arrays for all of these markets; where models press on bandwidth too, classes have more corners."""
    corners = CORNERS if has_both else ENDS
    groups = max((len(m.turns) for m in markets), default=0)
    layers = max((int(m.turns.sum()) for m in markets), default=0)
    rows = max((len(m.memory_gib) for m in markets), default=0)
    seen = corners * SEARCH_TURNS
    return KnapsackScratch(
        np.zeros((corners * rows, SM)), np.zeros((max(groups, 1), SM)), np.zeros((layers + 1, SM)),
        np.zeros((seen, SM), dtype=np.int64), np.zeros((seen, SM), dtype=np.int64), np.zeros((seen, 5)),
        np.zeros((corners * PRICES, layers + 1, SM)),
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
        pressure, idle = t.pressure[used], idle_pressure(t)
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
                profiles=Members.collect(group, len(turns)),
                offers=Members.collect(profile.astype(np.int64), len(used)),
                feels=t.sensitivity[used],
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


def most_pressure(m: Market, s: KnapsackScratch, runs: NDArray[np.bool_]) -> Pressure:
    """Returns the most total pressures that a GPU can have, with that of its idle SMs, ignoring memory."""
    if not len(m.turns):
        return complex(m.idle)
    nothing = np.zeros_like(m.pressure)
    most = [
        kernels.knapsack(
            np.where(runs, added, 0.0), m.group, m.turns, nothing, m.memory_gib, 0j, 0.0, 0.0, s.values, s.best,
            s.got_profile[0], s.got_sm[0], s.about[0],
        )
        for added in (m.added.real, m.added.imag)
    ]  # fmt: skip
    return complex(max((m.idle + most[0]) * (1 + 1e-9), 0.0), most[1] * (1 + 1e-9))


def new_class(a: AcceptedRates, m: Market, lo: Pressure, hi: Pressure) -> GpuClass:
    """Makes a class with its lines."""
    count = m.last - m.first
    spare = count if a.spare_need.any() else 0
    ends = [np.zeros((size, SM), np.float32) for size in (count, count, spare, spare)]
    lines(a.world, a.full_ratio, a.need, a.spare_need, m.first, m.last, 1.0, lo, hi, *ends)
    return GpuClass(lo, hi, ends[0], ends[1], ends[2], ends[3], np.zeros(4))


def part_of_class(
    a: AcceptedRates, m: Market, c: GpuClass, of: tuple[Pressure, Pressure], prices: Floats, steps: StepPrices
) -> tuple[GpuClass, int]:
    """Returns a part of a class, with finer lines where that counts, and how many lines it looked at."""
    lo, hi = of
    ends: list[Lines] = []
    for left, right, least in ((c.at_lo, c.at_hi, TINY), (c.spare_lo, c.spare_hi, 0.0)):
        ends += [np.empty_like(left), np.empty_like(left)]
        narrowed(
            c.at_lo, m.profile, m.feels, m.pressure, c.lo, c.hi, lo, hi, least, left, right, *ends[-2:],
        )  # fmt: skip
    looked = finer(
        a.world, steps, a.full_ratio, a.need, a.spare_need, prices, m.first, 1.0, lo, hi, m.profile, m.energy,
        m.feels, m.pressure, MARGIN_SHARE, *ends,
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


def settle_patterns(
    a: AcceptedRates, m: Market, prices: Floats, steps: StepPrices, s: KnapsackScratch, count: int
) -> tuple[list[RealPattern], float]:
    """Returns the patterns on the scratch, so many, at their true rates, and the most that one of them is worth."""
    most = settle(
        a.world, a.full_ratio, a.need, a.spare_need, steps, prices, m.first, m.offers.start, m.offers.member, m.service,
        m.energy, m.pressure, m.added, m.memory_gib, m.idle, m.room_gib, m.share_price, count, s.got_profile, s.got_sm,
        s.about, s.offers, s.rates, s.spare,
    )  # fmt: skip
    found = [
        RealPattern(
            m.number, s.offers[i, : int(n)] + m.first, s.got_sm[i, : int(n)].copy(), s.rates[i, : int(n)].copy(),
            s.spare[i, : int(n)].copy(), max(used / 100.0, held / m.room_gib),
        )
        for i, (n, _, _, held, used) in enumerate(s.about[:count].tolist())
        if n > 0
    ]  # fmt: skip
    return found, float(most)


class MarketLook:
    """A look at a market's GPUs at given prices: the worth of one, and good patterns."""

    def __init__(
        self, a: AcceptedRates, m: Market, prices: Floats, steps: StepPrices, s: KnapsackScratch, enough: float
    ) -> None:
        self.accepted, self.market, self.prices, self.steps, self.scratch = a, m, prices, steps, s
        self.patterns: list[RealPattern] = []
        self.alone = best_alone(m, prices, steps)[0]
        self.real = max(enough, self.alone)  # the most that a pattern was found to be worth
        self.steps_done = 0
        self.drawn = -1  # the class whose earnings are drawn
        self.tolerance = FINE_SHARE * m.scale
        self.earned = s.earned_of(m)
        self.worths = [self._search(place, 1) for place in range(len(m.classes))]

    @property
    def worth(self) -> float:
        """Returns what a GPU of this market is worth at most."""
        return max(max(self.worths, default=0.0), self.alone, 0.0)

    def search_exactly(self, most: int = MOST_STEPS, in_all: float = np.inf) -> None:
        """Searches the classes that decide, until the worth of a GPU is exact if it is more than enough.

        Every class has a bound at its own prices already, so that it may end after so many steps `in_all`. A class
        whose search takes more than `most` steps is halved.
        """
        m, worths = self.market, self.worths
        self.drawn = -1  # other markets have used the scratch since
        is_done = [False] * len(worths)
        while worths and self.steps_done < in_all:
            place = int(np.argmax(worths))
            if is_done[place] or worths[place] <= self.real:
                break
            c = m.classes[place]
            worths[place] = min(worths[place], self._search(place, SEARCH_TURNS))
            if worths[place] <= self.real:
                continue
            width = c.hi - c.lo
            is_narrow = max(width.real, width.imag) < LEAST_WIDTH_PRESSURE
            worth, is_exact = self._enumerate(place, NARROW_FACTOR * most if is_narrow else most)
            if is_exact or is_narrow:
                worths[place], is_done[place] = min(worths[place], worth), True
            else:
                self._halve(place)
                worths[place : place + 1] = [self._search(half, 1) for half in (place, place + 1)]
                is_done[place : place + 1] = [False, False]

    def _take(self, count: int) -> None:
        """Takes so many answers of the knapsacks."""
        found, most = settle_patterns(self.accepted, self.market, self.prices, self.steps, self.scratch, count)
        self.real = max(self.real, most)
        self.patterns += found

    def _draw(self, place: int) -> None:
        """Writes what profiles earn at the corners of a class where knapsacks read it."""
        if place == self.drawn:
            return
        m, c = self.market, self.market.classes[place]
        kernels.envelopes(
            self.steps, self.prices, m.service, m.profile, m.energy, m.feels, m.pressure, c.lo, c.hi, c.at_lo, c.at_hi,
            c.spare_lo, c.spare_hi, self.earned,
        )  # fmt: skip
        self.drawn = place

    def _search(self, place: int, most: int) -> float:
        """Improves the own prices of a class, takes the patterns found and returns what it proves."""
        m, s = self.market, self.scratch
        c = m.classes[place]
        self._draw(place)
        count = kernels.worth(
            self.earned, m.group, m.turns, m.added, m.memory_gib, c.lo - m.idle, c.hi - m.idle, m.room_gib,
            m.share_price, m.scale, self.real, self.tolerance, most, c.own, s.values, s.best, s.got_profile, s.got_sm,
            s.about,
        )  # fmt: skip
        proved = float(c.own[3])
        if proved >= COLUMN_SHARE * self.real:
            self._take(count)
        return proved

    def _enumerate(self, place: int, most: int) -> tuple[float, bool]:
        """Returns what a GPU of a class is worth, no less than the most found so far, and whether it is exact."""
        a, m, s = self.accepted, self.market, self.scratch
        c = m.classes[place]
        self._draw(place)
        counts = np.zeros(2, dtype=np.int64)
        worth = find_dearest(
            a.world, a.full_ratio, a.need, a.spare_need, self.steps, self.prices, m.first, m.offers.start,
            m.offers.member, m.service, m.energy, m.pressure, m.idle, self.earned, m.profiles.start,
            m.profiles.member, m.turns, m.added, m.memory_gib, c.lo - m.idle, c.hi - m.idle, m.room_gib,
            m.share_price, m.scale, c.own, self.real, most, s.promised, s.got_profile, s.got_sm, s.about, counts,
        )  # fmt: skip
        self.steps_done += int(counts[1])
        self._take(min(int(counts[0]), len(s.got_sm)))
        return float(worth), int(counts[1]) <= most

    def _halve(self, place: int) -> None:
        """Makes two classes of one, by the pressure whose width is felt more on average."""
        c = self.market.classes[place]
        width, felt, middle = c.hi - c.lo, self.market.feels.mean(), 0.5 * (c.lo + c.hi)
        if width.real * felt.real >= width.imag * felt.imag:
            ends = (c.lo, complex(middle.real, c.hi.imag)), (complex(middle.real, c.lo.imag), c.hi)
        else:
            ends = (c.lo, complex(c.hi.real, middle.imag)), (complex(c.lo.real, middle.imag), c.hi)
        halves = [part_of_class(self.accepted, self.market, c, of, self.prices, self.steps) for of in ends]
        self.market.classes[place : place + 1] = [half for half, _ in halves]
        self.steps_done += STEPS_A_LINE * sum(looked for _, looked in halves)
        self.drawn = -1
