"""The multiple-choice knapsack of one option per GPU within the fleet's watts: LP bound, heuristic, proved optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]

MOST_GAIN = 1e290  # worth a watt: two options may differ by the smallest number there is
NOISE = 1e-12  # relative; bounds are raised and budgets lowered by this much


@dataclass(frozen=True, slots=True)
class Front:
    """The options of a class of equal GPUs: watts above idle and worth, both strictly rising."""

    watts: Numbers
    worth: Numbers
    gpus: int


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The optimum of the LP: an upper bound of every choice, and the price of a watt that proves it."""

    bound: float
    price_per_w: float


@dataclass(frozen=True, slots=True)
class KnapsackChoice:
    """One option for each GPU, front by front, with the bound and whether it is proved optimal."""

    picks: tuple[tuple[int, ...], ...]
    bound: float
    work: int
    is_proved: bool


def hull(front: Front) -> list[int]:
    """Returns the options on the upper concave hull, along which each step gains less per watt than the one before."""
    options: list[int] = []
    for option in range(len(front.watts)):
        while len(options) > 1 and _gain(front, options[-2], options[-1]) <= _gain(front, options[-1], option):
            options.pop()
        options.append(option)
    return options


def _gain(front: Front, low: int, high: int) -> float:
    more, watts = float(front.worth[high] - front.worth[low]), float(front.watts[high] - front.watts[low])
    return min(more / watts, MOST_GAIN)


def bound_by_relaxation(fronts: Sequence[Front], room_w: float) -> Relaxed:
    """Returns the LP bound by its dual at the price of the first step that does not fit (Sinha and Zoltners, 1979)."""
    steps = sorted(
        (-_gain(front, low, high), float(front.watts[high] - front.watts[low]) * front.gpus)
        for front in fronts
        for low, high in pairwise(hull(front))
    )
    free_w = room_w - sum(front.gpus * float(front.watts[0]) for front in fronts)
    price = 0.0
    for loss, watts in steps:
        free_w -= watts
        if free_w < 0:
            price = -loss
            break
    return Relaxed(dual(fronts, room_w, price), price)


def dual(fronts: Sequence[Front], room_w: float, price_per_w: float) -> float:
    """Returns the dual value, a bound at any price: the price of all watts plus each GPU's best net worth."""
    total = price_per_w * room_w
    for front in fronts:
        total += front.gpus * float((front.worth - price_per_w * front.watts).max())
    return total * (1 + NOISE)


def greedy(fronts: Sequence[Front], room_w: float) -> list[list[int]]:
    """Takes steps along the hulls, most worth per watt first, while they fit; then raises single GPUs as they fit."""
    steps = sorted(
        (-_gain(front, low, high), place, low, high)
        for place, front in enumerate(fronts)
        for low, high in pairwise(hull(front))
    )
    picks = [[0] * front.gpus for front in fronts]
    free_w = room_w * (1 - NOISE) - sum(front.gpus * float(front.watts[0]) for front in fronts)
    for _, place, low, high in steps:
        front = fronts[place]
        watts = float(front.watts[high] - front.watts[low])
        for gpu, pick in enumerate(picks[place]):
            if pick == low and watts <= free_w:
                picks[place][gpu] = high
                free_w -= watts
    for place, front in enumerate(fronts):
        for gpu, pick in enumerate(picks[place]):
            reach = int(np.searchsorted(front.watts, front.watts[pick] + free_w, side="right")) - 1
            if reach > pick:
                free_w -= float(front.watts[reach] - front.watts[pick])
                picks[place][gpu] = reach
    return picks


def worth(fronts: Sequence[Front], picks: Sequence[Sequence[int]]) -> float:
    return sum(float(front.worth[list(chosen)].sum()) for front, chosen in zip(fronts, picks, strict=True))


def exact(fronts: Sequence[Front], room_w: float, budget: int, states: int = 20_000) -> KnapsackChoice:
    """Extends, GPU by GPU, all undominated (watts, worth) sums that can still beat the best known answer.

    The LP's price bounds what a sum can reach, which leaves few of them. If more than `states` remain, or once
    `budget` sums were made, only the most promising stay and the bound accounts for the rest."""
    lp = bound_by_relaxation(fronts, room_w)
    best = greedy(fronts, room_w)
    best_worth = worth(fronts, best)
    room = room_w * (1 - NOISE)
    gains = [front.worth - lp.price_per_w * front.watts for front in fronts]
    rest = sum(front.gpus * float(gain.max()) for front, gain in zip(fronts, gains, strict=True))
    watts, yields = np.zeros(1), np.zeros(1)
    trail: list[tuple[Whole, Whole]] = []  # per GPU: each sum's parent and option
    dropped, work = 0.0, 0
    for front, gain in zip(fronts, gains, strict=True):
        for _ in range(front.gpus):
            rest -= float(gain.max())
            width = len(front.watts)
            work += len(watts) * width
            all_watts = (watts[:, None] + front.watts[None, :]).ravel()
            all_yields = (yields[:, None] + front.worth[None, :]).ravel()
            hope = (all_yields + lp.price_per_w * (room_w - all_watts) + rest) * (1 + NOISE)
            alive = np.flatnonzero((all_watts <= room) & (hope > best_worth))
            order = alive[np.lexsort((alive, -all_yields[alive], all_watts[alive]))]
            before = np.maximum.accumulate(np.concatenate(([-np.inf], all_yields[order][:-1])))
            order = order[all_yields[order] > before] if len(order) else order
            most = states if work < budget else 1
            if len(order) > most:
                ranked = order[np.argsort(-hope[order], kind="stable")]
                dropped = max(dropped, float(hope[ranked[most]]))
                order = np.sort(ranked[:most])
            trail.append((order // width, order % width))
            watts, yields = all_watts[order], all_yields[order]
    if len(watts):
        best = _follow(fronts, trail, int(np.argmax(yields)))
        best_worth = worth(fronts, best)
    bound = min(lp.bound, max(best_worth, dropped))
    return KnapsackChoice(tuple(tuple(chosen) for chosen in best), bound, work, dropped <= best_worth)


def _follow(fronts: Sequence[Front], trail: list[tuple[Whole, Whole]], state: int) -> list[list[int]]:
    """Returns the options that led to this sum."""
    options = []
    for parents, taken in reversed(trail):
        options.append(int(taken[state]))
        state = int(parents[state])
    options.reverse()
    picks, start = [], 0
    for front in fronts:
        picks.append(options[start : start + front.gpus])
        start += front.gpus
    return picks
