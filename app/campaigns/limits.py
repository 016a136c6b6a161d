"""The settings that a campaign measures unless others are asked for, and its effort."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from agents.contract.campaigns import CopySetting

BATCHES = (1, 2, 4, 8, 16, 32)
SM_PERCENTS = (10, 20, 30, 40, 50, 60, 80, 100)
MOST_MEASUREMENTS = 16
ACCURACY_SHARE = 0.04


def grid(batches: Sequence[int], sm_percents: Sequence[int], clocks_mhz: Sequence[int]) -> tuple[CopySetting, ...]:
    """Returns the settings among which a campaign chooses."""
    found = product(sorted(set(batches)), map(float, sorted(set(sm_percents))), sorted(set(clocks_mhz)))
    return tuple(CopySetting(*setting) for setting in found)
