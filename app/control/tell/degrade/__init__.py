"""Degrading in order: less accurate variants where a service admits them, then waiting, then 503; by priority.

Variants and priorities are the solver's: what is unserved has its price, so it takes whichever admitted variant needs
least before it leaves anything out, and leaves out first what weighs least. What remains is said to the gateways.
"""

from __future__ import annotations

from app.control.tell.degrade.degradation import Degraded, Why, find_degraded
from app.control.tell.degrade.shedding import Shedding, SloTarget, plan_shedding

__all__ = ["Degraded", "Shedding", "SloTarget", "Why", "find_degraded", "plan_shedding"]
