"""What runs on a GPU when power is limited (Morak, section V)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PoweredResident:
    """One model on its share of a GPU."""

    model: str
    sm_percent: int
    batch: int
