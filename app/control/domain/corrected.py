"""Applies a correction to a profile, as plans use it."""

from __future__ import annotations

from dataclasses import replace

from app.control.domain.snapshot import Correction
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Curve, Profile


def correct_profile(profile: Profile, correction: Correction) -> Profile:
    """Returns the profile with its latency, sensitivity, memory and power corrected.

    The curve gets a point wherever the correction has one inside it, so that one range can be slower than both sides.
    """
    latency = {batch: _correct_curve(curve, batch, correction) for batch, curve in profile.latency_ms.items()}
    memory = {batch: value * correction.memory_factor for batch, value in profile.memory_gib.items()}
    demand = profile.demand
    power = tuple((sm, value * correction.power_factor) for sm, value in demand.power_w)
    sensitivity = demand.sensitivity * correction.sensitivity_factor
    return replace(
        profile, latency_ms=latency, memory_gib=memory, demand=replace(demand, power_w=power, sensitivity=sensitivity)
    )


def factor_at(correction: Correction, batch: int, sm_percent: float) -> float:
    """Returns the factor of latency there; 1 for a batch that it does not know."""
    factors = _factors(correction, batch)
    return value_at(factors, sm_percent) if factors else 1.0


def _factors(correction: Correction, batch: int) -> Curve:
    own = tuple((point.sm_percent, point.factor) for point in correction.latency if point.batch == batch)
    return own or tuple((point.sm_percent, point.factor) for point in correction.latency if point.batch == 0)


def _correct_curve(curve: Curve, batch: int, correction: Correction) -> Curve:
    factors = _factors(correction, batch)
    if not factors:
        return curve
    inside = {sm for sm, _ in factors if curve[0][0] < sm < curve[-1][0]}
    points = sorted({*inside, *(sm for sm, _ in curve)})
    return tuple((sm, value_at(curve, sm) * value_at(factors, sm)) for sm in points)
