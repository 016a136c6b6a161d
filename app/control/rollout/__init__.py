"""Leads nodes from what they run to what a plan wants: make before break, room and capacity at every step.

`order` finds the steps before a plan is recorded; `advance` says, again and again, what may be assigned now.
"""

from __future__ import annotations

from app.control.rollout.advance import advance
from app.control.rollout.life import begin, restart_clocks, roll_back
from app.control.rollout.ordering.finding import find_blocked, has_order, order
from app.control.rollout.rules import Advance, RolloutOrder, RolloutRules, RolloutState, WaitingChange

__all__ = [
    "Advance",
    "RolloutOrder",
    "RolloutRules",
    "RolloutState",
    "WaitingChange",
    "advance",
    "begin",
    "find_blocked",
    "has_order",
    "order",
    "restart_clocks",
    "roll_back",
]
