"""How often a cloud takes a spot node back, learned from its notices, and what that costs an hour.

Notices come as a Poisson process; a Gamma prior is worth one notice in a hundred node hours, so that a pool without
history counts as somewhat risky, and a few hours of storms count at once.
"""

from __future__ import annotations

from dataclasses import dataclass

PRIOR_NOTICES, PRIOR_NODE_HOURS = 1.0, 100.0


@dataclass(frozen=True, slots=True)
class ReclaimHistory:
    """The notices that nodes got, and the hours in which they could get one."""

    notices: int = 0
    node_hours: float = 0.0

    @property
    def per_hour(self) -> float:
        """Returns the mean of the posterior: notices to expect in an hour of a node."""
        return (PRIOR_NOTICES + self.notices) / (PRIOR_NODE_HOURS + self.node_hours)


NO_RECLAIMS = ReclaimHistory()


def price_reclaims(history: ReclaimHistory, price_per_hour: float, lost_seconds: float) -> float:
    """Returns what reclaims of a node are expected to cost an hour.

    Each costs so many seconds in which another node is paid for and serves nothing: it starts, or takes over.
    """
    return history.per_hour * price_per_hour * lost_seconds / 3600
