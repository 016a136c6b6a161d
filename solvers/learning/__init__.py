"""Learns how a measured curve differs from a declared one: filters of its regions, and a fit that correlates them."""

from __future__ import annotations

from solvers.learning.fit import CurveFit, fit_curve, inflate_others
from solvers.learning.region import RatioSample, Region, new_region, update_region
from solvers.learning.tuning import FilterTuning, PriorTuning

__all__ = [
    "CurveFit",
    "FilterTuning",
    "PriorTuning",
    "RatioSample",
    "Region",
    "fit_curve",
    "inflate_others",
    "new_region",
    "update_region",
]
