"""The price of a change that only saves, beside its churn.

Churn prices a change by the share of a GPU that moves: next to nothing for a small copy. But each change is a hand-over
that may fail, and the loads that it was made for move on. So what only saves is to be worth more.
"""

from __future__ import annotations

CHANGE_HOURS = 0.1  # of the mean price of an instance


def change_price(price_per_hour: float, instances: int) -> float:
    """Returns what each start, move and resize is to be worth in a plan with so many instances, beside its churn."""
    return CHANGE_HOURS * price_per_hour / max(1, instances)
