"""The bound that any prices prove, for tests that draw them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solvers.planning.bound.attainable import attainable
from solvers.planning.bound.fleet import fleet, look_at
from solvers.planning.fleet.grids import Floats
from solvers.planning.search.tables import Tables
from solvers.planning.steps import NO_STEPS, RateSteps


def bound_at(tables: Tables, prices: Floats, steps: RateSteps = NO_STEPS) -> float:
    """Returns the bound that prices of a request a second, and of steps, prove; a price below 0 counts as 0."""
    f = replace(fleet(tables), steps=steps)
    found = look_at(f, f.limited(np.maximum(prices, 0.0))).bound
    return attainable(f).above(found)
