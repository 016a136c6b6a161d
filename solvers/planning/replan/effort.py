"""The price of a change that only saves, beside its churn.

Churn prices a change by the share of a GPU that moves: next to nothing for a small instance. But each change is a
hand-over that may fail, and the loads that it was made for move on. So what only saves is to be worth more.
"""

from __future__ import annotations


def change_price(move_price: float, price_per_hour: float, instances: int) -> float:
    """Returns what each start, move and resize is to be worth in a plan with so many instances, beside its churn.

    That is the churn of a mean instance, so that it grows with the policy's price of a move.
    """
    return move_price * price_per_hour / max(1, instances)
