"""What a GPU may run when power is limited: models with their limits, and their residents (Morak, section V)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solvers.planning.problem import Profile


@dataclass(frozen=True, slots=True)
class PoweredModel:
    """A model under saturated load: every batch is full, and batches run back to back."""

    name: str
    limit_ms: float  # of one batch's execution: Morak, constraint (3)
    profiles: Mapping[str, Profile]  # by GPU type
    sm_percents: Mapping[str, tuple[int, ...]]  # by GPU type: the shares of a GPU it may get
    weight: float = 1.0  # the worth of one request


@dataclass(frozen=True, slots=True, order=True)
class PoweredResident:
    """One model on its share of a GPU."""

    model: str
    sm_percent: int
    batch: int
