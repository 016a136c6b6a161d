"""Tells missed SLOs from chance: misses come in bursts, so fewer of them are independent than there are requests."""

from __future__ import annotations

from math import sqrt

BURST_SLOS = 5.0  # a chance of a burst in so many times the SLO
SURE_DEVIATIONS = 2.5


def exceeds_chance(missed_share: float, allowed_share: float, requests: float, seconds: float, slo_ms: float) -> bool:
    """Returns whether more requests missed the SLO in these seconds than the percentile and chance allow."""
    chances = max(1.0, min(requests, 1000 * seconds / (BURST_SLOS * slo_ms)))
    return missed_share > allowed_share + SURE_DEVIATIONS * sqrt(allowed_share * (1 - allowed_share) / chances)
