"""How far a number may be off before a rule calls it broken: every tolerance of the judge, in one place."""

from __future__ import annotations

SUM = 1e-9  # sums of floats, and products of a few: relative, and absolute below 1
RATE = 1e-5  # rates of a service against what is asked; unserved below this share of it is none
BUDGET = 0.02  # of the fleet's power, whose busy fractions come out of a simulation
SAME = 1e-9  # times max(1, value): what differs by less is no change
CLAIM = 0.01  # of a prediction that the plan states


def at_most(value: float, limit: float) -> bool:
    """value <= limit, up to what adding floats loses; False for what is no number."""
    return value <= limit + SUM * (limit if limit > 1 else 1.0)


def same(one: float, other: float) -> bool:
    """|one - other| <= 1e-9 x max(1, value)."""
    return one == other or abs(one - other) <= SAME * (one if one > 1 else 1.0)
