"""The fast lane: when a service's load or latency moves between two cycles, it takes the cheapest step that helps.

Like InSS it has layers: first another batch and timeout, which restart nothing; then more SM%, if the GPUs have some to
spare; then new instances. It sets frames, and the node decides inside them. `watch_loads` says when to act (a fold over
ticks), `find_quick_step` says what to do (a plan from a plan). The rate that a step was sized for becomes the service's
planned rate, so that the next cycle keeps the step.
"""

from __future__ import annotations

from app.control.fast.ladder import QuickStep, find_quick_step
from app.control.fast.step_draft import StepKind
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
