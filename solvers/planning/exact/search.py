"""Decides if these GPUs can serve everything: yes, with the patterns; no, proved by prices; or not known yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from solvers.planning.exact.master import block_arrays, complete, mix, worths
from solvers.planning.search.tables import Floats, Ints

Verdict: TypeAlias = Literal["yes", "no", "open", "hair"]  # hair: closer to the need than the judge's tolerance
ENOUGH_SHARE = 1 - 3e-5  # of every need: no valid plan serves less (the judge tolerates two parts in 1e5)


@dataclass(frozen=True, slots=True)
class Branch:
    """Patterns still allowed on each GPU, and prices to begin with."""

    rates: tuple[Floats, ...]
    ids: tuple[Ints, ...]
    prices: Floats


class ExactSearch:
    """Branches depth first on halves of a GPU's patterns, the more promising half first; may be continued.

    A branch is refuted by prices at which the best patterns of all GPUs together are worth less than the need. The
    same prices drop every pattern that could not be part of an answer even with the best of all others.
    """

    def __init__(self, sets: Sequence[Floats], prices: Floats) -> None:
        """`sets`: for each GPU its patterns' rates in parts of the need."""
        self.stack = [Branch(tuple(sets), tuple(np.arange(len(rates)) for rates in sets), prices)]
        self.work = 0
        self.certain = True
        self.chosen: tuple[int, ...] = ()

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
        """Refutes the branch, finds an answer in it (True), or puts its halves on the stack."""
        rates, tops, start, end = block_arrays(branch.rates)
        v, used, much, _, bound = mix(rates, tops, start, end, np.ones(len(start)), ENOUGH_SHARE, branch.prices)
        if bound < ENOUGH_SHARE:
            return False
        of = np.searchsorted(start, used, side="right") - 1
        chosen = start.copy()
        for g in range(len(start)):
            is_here = of == g
            if is_here.any():
                chosen[g] = used[is_here][much[is_here].argmax()]
        cover = rates[chosen].sum(axis=0)
        if complete(rates, start, end, cover, chosen) <= 0.0:
            self.chosen = tuple(int(ids[p - first]) for ids, p, first in zip(branch.ids, chosen, start, strict=True))
            return True
        best = worths(rates, tops, start, end, v)
        floor = best - (best.sum() - ENOUGH_SHARE * v.sum()) - 1e-12
        masks = [part @ v >= least for part, least in zip(branch.rates, floor, strict=True)]
        remaining = [part[mask] for part, mask in zip(branch.rates, masks, strict=True)]
        ids = [part[mask] for part, mask in zip(branch.ids, masks, strict=True)]
        split = _split(rates[used], v, much, of, remaining)
        if split is None:
            self.certain = False
            return False
        gpu, service, at = split
        high = remaining[gpu][:, service] > at
        mixed_high = rates[used, service] > at
        upper, lower = float(much[(of == gpu) & mixed_high].sum()), float(much[(of == gpu) & ~mixed_high].sum())
        for mask in (high, ~high) if upper < lower else (~high, high):  # what is pushed last is looked at first
            half, half_ids = list(remaining), list(ids)
            half[gpu], half_ids[gpu] = remaining[gpu][mask], ids[gpu][mask]
            self.stack.append(Branch(tuple(half), tuple(half_ids), v))
        return False


def _split(
    mixed: Floats, v: Floats, much: Floats, of: Ints, remaining: Sequence[Floats]
) -> tuple[int, int, float] | None:
    """Returns the GPU and service whose mixed patterns differ most in worth, and a rate between them."""
    best, found = 1e-9, None
    for gpu in range(len(remaining)):
        is_here = of == gpu
        if is_here.sum() < 2:
            continue
        weight = much[is_here] / much[is_here].sum()
        middle = weight @ mixed[is_here]
        spread = v * (weight @ np.abs(mixed[is_here] - middle))
        for service in np.flatnonzero(spread > best):
            high = remaining[gpu][:, service] > middle[service]
            if spread[service] > best and high.any() and not high.all():
                best, found = float(spread[service]), (gpu, int(service), float(middle[service]))
    if found is not None:
        return found
    # Nothing is mixed, yet the whole falls short by a hair: halve the largest set that can be halved.
    for gpu in sorted(range(len(remaining)), key=lambda g: -len(remaining[g])):
        low, top = remaining[gpu].min(axis=0, initial=np.inf), remaining[gpu].max(axis=0, initial=-np.inf)
        widest = int((top - low).argmax())
        if top[widest] - low[widest] > 1e-9:
            return gpu, widest, float((low[widest] + top[widest]) / 2)
    return None
