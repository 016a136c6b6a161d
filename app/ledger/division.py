"""Whole numbers divided by shares so that the parts add up: largest remainder, ties to who comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from app.ledger.facts import Usage

SCALE = 2**60  # a double times a power of two is exact, and beyond 60 binary places there is nothing worth money


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of a whole: `parts` are the residents' in their order, then what is idle; they add up to `whole`."""

    parts: tuple[int, ...]
    whole: int


def shares_of(residents: Sequence[Usage], memory_gib: float) -> Shares:
    """Divides a GPU among its holders at one moment.

    They pay u = max(sum of SM%/100, sum of memory / the GPU's memory) of it, at most all and all where one is
    dedicated, each by its weight max(SM%/100, memory / the GPU's memory); where nobody has a weight, alike.
    """
    memory = int(memory_gib * SCALE)
    full = 100 * SCALE * memory  # the GPU, in the unit in which all that follows is whole
    by_sm = [int(one.sm_percent * SCALE) * memory for one in residents]
    by_memory = [int(one.memory_gib * SCALE) * 100 * SCALE for one in residents]
    used = min(full, max(sum(by_sm), sum(by_memory)))
    if any(one.dedicated for one in residents):
        used = full
    weights = [max(pair) for pair in zip(by_sm, by_memory, strict=True)]
    if not any(weights):
        weights = [1] * len(weights)
    weight = sum(weights)
    parts = [used * own for own in weights] + [(full - used) * weight]
    common = gcd(*parts)
    return Shares(tuple(part // common for part in parts), full * weight // common)


def divided(amount: int, shares: Shares) -> list[int]:
    """The amount in whole parts; the sum of the parts is the amount, and none is off by a whole one."""
    whole = shares.whole
    taken = [divmod(amount * part, whole) for part in shares.parts]
    found = [floor for floor, _ in taken]
    left = amount - sum(found)
    if left:
        order = sorted(range(len(taken)), key=lambda index: -taken[index][1])
        for index in order[:left]:
            found[index] += 1
    return found
