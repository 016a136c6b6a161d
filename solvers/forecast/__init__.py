"""Forecasts the request rate of a service for the time that a plan covers."""

from __future__ import annotations

from solvers.forecast.headroom import Headroom, Keeper, Part, account
from solvers.forecast.margin import Margin, MarginRules, MarginScores, make_margin_rules
from solvers.forecast.peaks import Forecast, PlannedRate, Reason, expect, expect_most
from solvers.forecast.samples import Sample
from solvers.forecast.settings import SCARCE, ForecastTuning

__all__ = [
    "SCARCE", "Forecast", "ForecastTuning", "Headroom", "Keeper", "Margin", "MarginRules", "MarginScores",
    "Part", "PlannedRate", "Reason", "Sample", "account", "expect", "expect_most", "make_margin_rules"
]  # fmt: skip
