"""The settings that a campaign measures unless others are asked for, and its effort."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

from agents.contract.campaigns import BesideSetting, CopySetting

BATCHES = (1, 2, 4, 8, 16, 32)
SM_PERCENTS = (10, 20, 30, 40, 50, 60, 80, 100)
BESIDE_BATCHES = (1, 8)  # beside neighbours
BESIDE_SM_PERCENTS = (20, 40, 60)
MOST_MEASUREMENTS = 16
ACCURACY_SHARE = 0.04
FULL_PERCENT = 100


def grid(batches: Sequence[int], sm_percents: Sequence[int], clocks_mhz: Sequence[int]) -> tuple[CopySetting, ...]:
    """Returns the settings among which a campaign chooses."""
    found = product(sorted(set(batches)), map(float, sorted(set(sm_percents))), sorted(set(clocks_mhz)))
    return tuple(CopySetting(*setting) for setting in found)


def neighbour_settings(
    batches: Sequence[int], sm_percents: Sequence[int], clock_mhz: int, neighbours: int
) -> tuple[CopySetting, ...]:
    """Returns the settings of a model beside one or two of its neighbours, in pairs with all batches."""
    sizes, shares = sorted(set(batches)), sorted(set(sm_percents))
    found = []
    for number in range(neighbours):
        for share, its_share in product(shares, shares):
            if share + its_share <= FULL_PERCENT:
                for batch, its_batch in product(sizes, sizes):
                    beside = BesideSetting(number, its_batch, float(its_share))
                    found.append(CopySetting(batch, float(share), clock_mhz, (beside,)))
    for first, second in combinations(range(neighbours), 2):
        for share, one, other in product(shares, shares, shares):
            if share + one + other <= FULL_PERCENT:
                trio = (BesideSetting(first, sizes[-1], float(one)), BesideSetting(second, sizes[-1], float(other)))
                found.append(CopySetting(sizes[-1], float(share), clock_mhz, trio))
    return tuple(found)
