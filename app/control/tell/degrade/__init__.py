"""Degrades services in order: less accurate variants where a service admits them, then queueing, then 503; by priority.

The solver chooses variants and priorities: unserved requests have a price, so it takes the admitted variant that needs
least before it leaves anything unserved, and then what weighs least. Gateways queue and reject the rest.
"""

from __future__ import annotations

from app.control.tell.degrade.degradation import Degraded, find_degraded
from app.control.tell.degrade.shedding import Shedding, SloTarget, plan_shedding

__all__ = ["Degraded", "Shedding", "SloTarget", "find_degraded", "plan_shedding"]
