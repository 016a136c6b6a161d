"""Divides whole numbers by shares so that the parts add up: largest remainder, ties to the first resident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from app.ledger.facts import Usage

SCALE = 2**60  # a double times a power of two is exact, and 60 binary places are enough for money


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of a GPU: those of the residents in order, then the idle part; they add up to `whole`."""

    parts: tuple[int, ...]
    whole: int


def shares_of(residents: Sequence[Usage], memory_gib: float) -> Shares:
    """Divides a GPU among its holders at one moment.

    Together they pay u = max(sum of SM%/100, sum of memory / the GPU's memory) of it, at most all of it, and all if a
    resident is dedicated. Each pays by its weight max(SM%/100, memory / the GPU's memory), or equally if all weights
    are zero.
    """
    memory = int(memory_gib * SCALE)
    full = 100 * SCALE * memory  # the GPU, in the unit in which all parts are whole numbers
    by_sm = [int(resident.sm_percent * SCALE) * memory for resident in residents]
    by_memory = [int(resident.memory_gib * SCALE) * 100 * SCALE for resident in residents]
    used = min(full, max(sum(by_sm), sum(by_memory)))
    if any(resident.dedicated for resident in residents):
        used = full
    weights = [max(pair) for pair in zip(by_sm, by_memory, strict=True)]
    if not any(weights):
        weights = [1] * len(weights)
    weight = sum(weights)
    parts = [used * own for own in weights] + [(full - used) * weight]
    common = gcd(*parts)
    return Shares(tuple(part // common for part in parts), full * weight // common)


def divide(amount: int, shares: Shares) -> list[int]:
    """Returns the amount in whole parts that add up to it, each less than 1 from its exact share."""
    whole = shares.whole
    taken = [divmod(amount * part, whole) for part in shares.parts]
    found = [floor for floor, _ in taken]
    rest = amount - sum(found)
    if rest:
        order = sorted(range(len(taken)), key=lambda index: -taken[index][1])
        for index in order[:rest]:
            found[index] += 1
    return found
