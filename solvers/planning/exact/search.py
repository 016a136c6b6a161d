"""Decides if these GPUs can serve everything: yes, with the patterns; no, proved by prices; or not known yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.exact.master import SATURATED_SHARE, block_arrays, complete, mix, worths
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.judge.tolerances import RATE_SHARE

Flags: TypeAlias = NDArray[np.bool_]
Verdict: TypeAlias = Literal["yes", "no", "open", "hair"]  # hair: closer to the need than the judge's tolerance
ENOUGH_SHARE = 1 - 3e-5  # of every need: no valid plan serves less (the judge tolerates two parts in 1e5)
LEAST_PART = 1e-6  # of a GPU: less is a whole number
PATTERNS_A_STEP = 20_000  # that are looked at in a step of work, besides the branch itself


@dataclass(frozen=True, slots=True)
class PatternGroup:
    """GPUs alike, and the patterns still allowed on each of them."""

    pool: int  # its place among the pools that the search began with
    number: int  # of GPUs
    rates: Floats  # [pattern, service], in parts of the need
    ids: Ints


@dataclass(frozen=True, slots=True)
class Branch:
    """The choices that are still allowed, and prices to begin with."""

    groups: tuple[PatternGroup, ...]
    prices: Floats


class ExactSearch:
    """Branches depth first on how many GPUs of a group take the patterns that carry more of a service.

    GPUs alike are counted, never told apart, so that no choice is looked at twice. A branch is refuted by prices at
    which the best patterns of all GPUs together are worth less than the need. The same prices drop every pattern that
    could not be part of an answer even with the best of all others.
    """

    def __init__(self, sets: Sequence[Floats], numbers: Sequence[int], prices: Floats) -> None:
        """`sets`: the rates of each pool's patterns in parts of the need; `numbers`: how many GPUs it has."""
        groups = tuple(
            PatternGroup(pool, number, rates, np.arange(len(rates)))
            for pool, (rates, number) in enumerate(zip(sets, numbers, strict=True))
        )
        self.stack = [Branch(groups, prices)]
        self.work = 0
        self.certain = True
        self.chosen: list[tuple[int, int]] = []  # pool and pattern of each GPU

    def run(self, work: int) -> Verdict:
        """Looks at so many more branches."""
        end = self.work + work
        while self.stack:
            if self.work >= end:
                return "open"
            self.work += 1
            if self._look(self.stack.pop()):
                return "yes"
        return "no" if self.certain else "hair"

    def _look(self, branch: Branch) -> bool:
        """Refutes the branch, finds an answer in it (True), or puts its parts on the stack."""
        groups, v = branch.groups, branch.prices
        number = np.array([group.number for group in groups], dtype=np.int64)
        while True:
            self.work += sum(len(group.rates) for group in groups) // PATTERNS_A_STEP
            needs = ~_settled(groups)
            if not needs.any():
                self.chosen = [(group.pool, int(group.ids[0])) for group in groups for _ in range(group.number)]
                return True
            rates, tops, start, end = block_arrays([group.rates[:, needs] for group in groups])
            begin = np.ascontiguousarray(v[needs]) if v[needs].any() else np.full(needs.sum(), 1.0 / needs.sum())
            open_v, used, much, _, bound = mix(
                rates, tops, start, end, number.astype(np.float64), ENOUGH_SHARE, begin
            )  # fmt: skip
            if bound < ENOUGH_SHARE:
                return False
            v = np.zeros(len(needs))
            v[needs] = open_v
            best = worths(rates, tops, start, end, open_v)
            floor = best - (float(number @ best) - ENOUGH_SHARE * open_v.sum()) - 1e-12
            kept = [_only(group, group.rates @ v >= least) for group, least in zip(groups, floor, strict=True)]
            if bound > 1 + SATURATED_SHARE or not (_settled(kept) & needs).any():
                break
            groups = tuple(kept)
        of = np.searchsorted(start, used, side="right") - 1
        chosen = _rounded(number, start, used, much, of)
        cover = rates[chosen].sum(axis=0)
        begins, ends = np.repeat(start, number), np.repeat(end, number)
        if complete(rates, begins, ends, cover, chosen) <= 0.0:
            every = [group for group in groups for _ in range(group.number)]
            places = (chosen - begins).tolist()
            self.chosen = [(group.pool, int(group.ids[place])) for group, place in zip(every, places, strict=True)]
            return True
        split = _split(rates[used], open_v, much, of, [group.rates[:, needs] for group in kept])
        if split is None:
            self.certain = False
            return False
        place, at_need, at = split
        need = int(np.flatnonzero(needs)[at_need])
        is_high = kept[place].rates[:, need] > at
        high = float(much[(of == place) & (rates[used, at_need] > at)].sum())
        for part in _parts(kept[place], is_high, high):
            self.stack.append(Branch((*kept[:place], *part, *kept[place + 1 :]), v))
        return False


def _settled(groups: Sequence[PatternGroup]) -> Flags:
    """Returns the needs that are covered whichever patterns are chosen.

    Prices pay for no others. Where a need can be covered in one way alone, prices that pay for it prove nothing else.
    """
    least: Floats = sum(group.number * group.rates.min(axis=0) for group in groups)
    return least >= 1 - RATE_SHARE  # a plan that serves less leaves a rate unserved


def _rounded(number: Ints, start: Ints, used: Ints, much: Floats, of: Ints) -> Ints:
    """Returns a pattern for each GPU, group after group: those that are mixed most."""
    chosen: list[int] = []
    for group, count in enumerate(number.tolist()):
        left = much * (of == group)
        for _ in range(count):
            most = int(left.argmax()) if len(left) else 0
            is_mixed = len(left) > 0 and left[most] > 0.0
            chosen.append(int(used[most]) if is_mixed else int(start[group]))
            if is_mixed:
                left[most] -= 1.0
    return np.array(chosen, dtype=np.int64)


def _only(group: PatternGroup, mask: Flags, number: int | None = None) -> PatternGroup:
    """Returns some of a group's patterns, on all of its GPUs or so many."""
    return PatternGroup(group.pool, group.number if number is None else number, group.rates[mask], group.ids[mask])


def _parts(group: PatternGroup, is_high: Flags, high: float) -> Iterator[tuple[PatternGroup, ...]]:
    """Yields the group with each number of its GPUs on high patterns, and the others on low ones.

    The last is the closest to what is mixed now: what is pushed last is looked at first.
    """
    counts = range(group.number + 1)
    for count in sorted(counts, key=lambda count: -abs(count - high)):
        halves = (_only(group, is_high, count), _only(group, ~is_high, group.number - count))
        yield tuple(half for half in halves if half.number)


def _split(mixed: Floats, v: Floats, much: Floats, of: Ints, groups: Sequence[Floats]) -> tuple[int, int, float] | None:
    """Returns the group and need of which mixed patterns differ most in worth, and a rate between them.

    `groups` are the rates of the patterns of each group.
    A rate that parts the mixed patterns into whole GPUs counts for little: the mix may stay as it is.
    """
    best, found = 1e-9, None
    for place, rates in enumerate(groups):
        is_here = of == place
        if is_here.sum() < 2:
            continue
        weight = much[is_here] / much[is_here].sum()
        middle = weight @ mixed[is_here]
        high = much[is_here] @ (mixed[is_here] > middle)
        part = np.abs(high - np.round(high))
        spread = v * (much[is_here] @ np.abs(mixed[is_here] - middle)) * np.where(part > LEAST_PART, 0.1 + part, 0.01)
        for service in np.flatnonzero(spread > best):
            is_high = rates[:, service] > middle[service]
            if spread[service] > best and is_high.any() and not is_high.all():
                best, found = float(spread[service]), (place, int(service), float(middle[service]))
    if found is not None:
        return found
    # Nothing is mixed, yet the whole falls short by a hair: halve the largest set that can be halved.
    for place in sorted(range(len(groups)), key=lambda place: -len(groups[place])):
        rates = groups[place]
        low, top = rates.min(axis=0, initial=np.inf), rates.max(axis=0, initial=-np.inf)
        widest = int((top - low).argmax())
        if top[widest] - low[widest] > 1e-9:
            return place, widest, float((low[widest] + top[widest]) / 2)
    return None
