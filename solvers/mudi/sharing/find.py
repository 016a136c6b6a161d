"""Finds the smallest SM%: raised from the least, or searched for where some pressure falls with SM%.

The search branches on boxes of SM%, the one with the smallest corner first. In a box, each neighbour presses at least
as much as it does at its kindest SM% of the box. The SM% a resident then needs raise the low end of the box, and the
SM% the others need lower its high end. A valid low corner is the best answer of its box, and the first one found is
the best of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from solvers.mudi.sharing.closed import find_needed_percent, value_at
from solvers.mudi.sharing.fleet import SharedFleet
from solvers.mudi.sharing.problem import SharedGpu, SharingResident


def find(gpu: SharedGpu, work_limit: int) -> LeastShares:
    """Returns the valid SM% of least sum; `work_limit` counts boxes, and matters only where pressure falls with SM%.

    If no resident's pressure falls with SM%, more SM% for one resident never means less for another. Then the least
    fixed point has the smallest SM% of all valid answers for every resident at once (Knaster and Tarski), and if it
    does not fit, nothing does. Otherwise the fixed point is still valid, because every resident has what it needs
    next to the others' final SM%; only the search can show that an answer is the smallest.
    """
    if len(gpu.residents) == 1:
        return _alone(gpu)
    fleet = SharedFleet.of([gpu])
    raised = fleet.decide(fleet.most_exec_ms)
    percents = tuple(raised.percents.tolist())
    fits = raised.blocked[0] == 0 and sum(percents) <= gpu.free_percent
    if all(resident.presses_no_less_with_more for resident in gpu.residents):
        return LeastShares(percents if fits else None, sum(percents) if fits else None)
    return least_sum(gpu, work_limit, percents if fits else None)


def _alone(gpu: SharedGpu) -> LeastShares:
    """Returns what the only resident needs: no neighbour answers to its SM%, so that there is nothing to raise."""
    needed = find_needed_percent(gpu.residents[0], gpu.other_pressure)
    if needed is None or needed > gpu.free_percent:
        return LeastShares(None, None)
    return LeastShares((needed,), needed)


Ends: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeastShares:
    """The best SM% of the search, in the order of the residents, and a lower bound of the sum of any valid answer."""

    percents: Ends | None
    bound_percent: int | None  # None: there is no valid answer


class Kindest:
    """The least pressure of a resident over a range of SM%."""

    def __init__(self, resident: SharingResident) -> None:
        self.of_percent = [value_at(resident.pressure, percent) for percent in range(101)]

    def over(self, low: int, high: int) -> float:
        return min(self.of_percent[low : high + 1])


def least_sum(gpu: SharedGpu, work_limit: int, known: Ends | None = None) -> LeastShares:
    """Returns the valid SM% of least sum; `known` is a valid answer to improve on."""
    kindest = [Kindest(resident) for resident in gpu.residents]
    best, most = known, gpu.free_percent if known is None else sum(known) - 1
    lows = tuple(resident.least_percent for resident in gpu.residents)
    highs = tuple(resident.most_percent for resident in gpu.residents)
    open_boxes: list[tuple[int, Ends, Ends]] = []
    work = 0
    pending = [(lows, highs)]
    while True:
        for box in pending:
            work += 1
            if shrunk := shrink(gpu, kindest, *box, most):
                heappush(open_boxes, (sum(shrunk[0]), *shrunk))
        if not open_boxes:
            return LeastShares(best, sum(best) if best is not None else None)
        bound, lows, highs = open_boxes[0]
        if holds(gpu, lows):  # no other box starts at a smaller sum
            return LeastShares(lows, bound)
        if work >= work_limit:
            return LeastShares(best, bound)
        heappop(open_boxes)
        pending = list(halves(lows, highs))


def shrink(
    gpu: SharedGpu, kindest: Sequence[Kindest], lows: Ends, highs: Ends, most_total: int
) -> tuple[Ends, Ends] | None:
    """Returns the part of the box that can hold a valid answer of that total, or None if no part can."""
    low, high = list(lows), list(highs)
    while True:
        total = sum(low)
        if total > most_total:
            return None
        high = [min(end, most_total - total + start) for start, end in zip(low, high, strict=True)]
        pressing = [kind.over(start, end) for kind, start, end in zip(kindest, low, high, strict=True)]
        needed = list(map(find_needed_percent, gpu.residents, neighbour_pressures(gpu, pressing)))
        raised = [start if need is None else max(start, need) for start, need in zip(low, needed, strict=True)]
        if None in needed or any(start > end for start, end in zip(raised, high, strict=True)):
            return None
        if raised == low:
            return tuple(low), tuple(high)
        low = raised


def holds(gpu: SharedGpu, percents: Ends) -> bool:
    """Returns whether every resident has the SM% it needs next to the others."""
    pressing = [value_at(resident.pressure, at) for resident, at in zip(gpu.residents, percents, strict=True)]
    needed = map(find_needed_percent, gpu.residents, neighbour_pressures(gpu, pressing))
    return all(need is not None and need <= at for need, at in zip(needed, percents, strict=True))


def neighbour_pressures(gpu: SharedGpu, pressing: Sequence[float]) -> list[float]:
    """Returns the pressure of all others on each resident."""
    return [gpu.other_pressure + sum(pressing[:i]) + sum(pressing[i + 1 :]) for i in range(len(pressing))]


def halves(lows: Ends, highs: Ends) -> tuple[tuple[Ends, Ends], tuple[Ends, Ends]]:
    """Cuts the box in two across its longest side."""
    side = max(range(len(lows)), key=lambda i: highs[i] - lows[i])
    middle = (lows[side] + highs[side]) // 2
    return (
        (lows, (*highs[:side], middle, *highs[side + 1 :])),
        ((*lows[:side], middle + 1, *lows[side + 1 :]), highs),
    )
