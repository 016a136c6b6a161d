"""Compiled: rates rounded in steps, and the price of each step."""

from __future__ import annotations

from math import floor
from typing import NamedTuple

import numba
import numpy as np

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.arrays import F8
from solvers.planning.steps import LEAST_LARGE, RateSteps


class StepPrices(NamedTuple):
    """The prices of rounded rates, service by service."""

    start: Ints  # [services + 1]
    length: Floats
    rise: Floats
    price: Floats
    spare: Floats  # [services] of a request a second that an instance could carry when a node is lost


STEP_PRICES = numba.typeof(StepPrices(np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1)))


@njit(F8(F8, F8, F8), inner=True)
def rounded(rate: float, length: float, rise: float) -> float:
    """Returns the steps that a rate fills: whole ones, and of the next as much as it has of the rise at its start.

    It never falls with the rate, and two rates fill no fewer steps than their sum. Of length 0 every rate fills one. A
    length below 0 is all of the rate: a quarter of it fills one, less fills LEAST_LARGE and three times its part.
    """
    if rate <= 0.0:
        return 0.0
    if length < 0.0:
        return float(min(1.0, LEAST_LARGE - 4.0 * (1.0 - LEAST_LARGE) * rate / length))
    if length == 0.0:
        return 1.0
    whole = floor(rate / length)
    return float(whole + min(1.0, (rate / length - whole) / rise))


def priced_steps(steps: RateSteps, prices: Floats, services: int) -> StepPrices:
    """Returns the steps that have a price, by service."""
    places = np.flatnonzero(prices > 0.0)
    places = places[np.argsort(steps.service[places], kind="stable")]
    count = np.bincount(steps.service[places], minlength=services)
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    of_spare = np.bincount(steps.service[places], prices[places] * steps.spare[places], minlength=services)
    return StepPrices(start, steps.length[places], steps.rise[places], prices[places], of_spare.astype(np.float64))
