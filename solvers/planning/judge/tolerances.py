"""Every tolerance of the judge: how far off a number may be before it breaks a rule."""

from __future__ import annotations

SUM_SHARE = 1e-9  # sums and products of floats: relative, and absolute below 1
RATE_SHARE = 1e-5  # sum of a service's rates; an unserved rate below this share of it counts as 0
BUDGET_SHARE = 0.02  # of the fleet's power, whose busy fractions come from a simulation
SAME_SHARE = 1e-9  # times max(1, value): a smaller difference is not a change
SURVIVING_UTILIZATION = 0.95  # of what is left of a service when it has lost a node
CLAIM_SHARE = 0.01  # of a prediction that the plan states


def is_at_most(value: float, limit: float) -> bool:
    """value <= limit, up to the rounding of sums; False for NaN."""
    return value <= limit + SUM_SHARE * (limit if limit > 1 else 1.0)


def same(value: float, other: float) -> bool:
    """|value - other| <= 1e-9 x max(1, value)."""
    return value == other or abs(value - other) <= SAME_SHARE * (value if value > 1 else 1.0)
