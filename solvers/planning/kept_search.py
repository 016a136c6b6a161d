"""Holds what a search for a bound has found, for a search whose services and offers are the same, at other rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.planning.steps import RateSteps

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeptClasses:
    """The classes of a market: where they end, and the prices of pressure and memory within each."""

    edges: Floats
    own: Floats  # [class, (price of pressure on compute, on bandwidth, of memory; worth)]


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """Columns, one after the other."""

    market: NDArray[np.int32]
    start: NDArray[np.int32]  # of its residents
    offers: NDArray[np.int32]
    sms: NDArray[np.int8]
    is_all: NDArray[np.bool_]  # of a service's rate: it takes more or fewer SMs when the rate has changed


@dataclass(frozen=True, slots=True)
class KeptSearch:
    """The best prices that a search has found, its ways of rounding rates, its classes and its columns."""

    services: tuple[str, ...]
    offer_service: Ints
    site_start: Ints
    need: Floats
    prices: Floats  # of rates, and then of steps
    steps: RateSteps
    classes: tuple[KeptClasses, ...]
    columns: KeptColumns
