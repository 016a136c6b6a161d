"""Corrections of profiles, as tests need them."""

from __future__ import annotations

from app.control.domain.snapshot import Correction, LatencyFactor


def slower(factor: float) -> Correction:
    """The whole curve, slower by one factor."""
    return Correction((LatencyFactor(0, 100, factor),))
