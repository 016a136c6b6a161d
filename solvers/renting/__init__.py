"""When to rent a node and when to give it back, as in ski rental: pure, without a clock.

Waiting for a node costs money, and so does a node that idles. A node is rented once waiting has cost as much as a start
and a minimum term, and given back once its term is over and it has idled for as long as a start. Where nothing may
wait, as requests would be lost, a pool without start time pays at most twice what hindsight pays; with waiting at most
three times.
"""

from __future__ import annotations

from solvers.renting.accounts import IdleNodes, RentAccount, RentalTerms
from solvers.renting.hindsight import HindsightRental, find_hindsight
from solvers.renting.reclaims import NO_RECLAIMS, ReclaimHistory, price_reclaims

__all__ = [
    "NO_RECLAIMS",
    "HindsightRental",
    "IdleNodes",
    "ReclaimHistory",
    "RentAccount",
    "RentalTerms",
    "find_hindsight",
    "price_reclaims",
]
