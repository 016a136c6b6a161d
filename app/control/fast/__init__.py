"""The fast lane: between two cycles, one service's load or latency moves, and the cheapest step is taken that mends it.

InSS has two layers, and so has this: first another batch and timeout, which restart nothing; then more SM% in what its
GPUs have to spare; then new instances. It sets frames, and what happens inside them is the node's. `watched` says when
(a fold over ticks), `quicken` what (a plan from a plan). The rate that a step was made for is what the service is
planned for from then on, so that the next cycle finds a plan that answers its question.
"""

from __future__ import annotations

from app.control.fast.ladder import QuickStep, StepKind, find_quick_step
from app.control.fast.watch import CapacityNeed, LoadWatch, PlannedLoad, StepTrigger, WatchedLoads, watch_loads

__all__ = [
    "CapacityNeed",
    "LoadWatch",
    "PlannedLoad",
    "QuickStep",
    "StepKind",
    "StepTrigger",
    "WatchedLoads",
    "find_quick_step",
    "watch_loads",
]
