"""Forecasts the request rate of a service for the time that a plan covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from solvers.forecast.headroom import Headroom, Keeper, Part, account
from solvers.forecast.margin import Margin, MarginRules, MarginScores, make_margin_rules
from solvers.forecast.peaks import Forecast, PlannedRate, Reason, expect, expect_most
from solvers.forecast.samples import Sample
from solvers.forecast.settings import SCARCE, ForecastTuning

__all__ = [
    "SCARCE", "Forecast", "ForecastTuning", "Forecaster", "Headroom", "Keeper", "Margin", "MarginRules", "MarginScores",
    "Part", "PlannedRate", "Reason", "Sample", "account", "expect", "expect_most", "make_margin_rules"
]  # fmt: skip


class Forecaster(Protocol):
    """The interface of a forecaster, which turns samples into a rate to plan for. `expect` implements it."""

    def __call__(self, samples: Sequence[Sample], plan: PlannedRate) -> Forecast: ...
