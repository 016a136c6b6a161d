"""Cross-checks plans: finds the cheapest plan of a small fleet by CP-SAT, with a model and a search of its own.

The model gives every instance the most that its shape carries beside a little less pressure than it may have, so that
its optimum is a bound. Where an answer carries more than its neighbours allow, that pressure becomes a limit of the
model, and it is solved again. An answer that the judge accepts at the bound is the cheapest plan.
"""

from __future__ import annotations

from solvers.crosscheck.scope import TooLarge, left_out
from solvers.crosscheck.search import TOLERANCE_SHARE, CrossCheck, cross_check

__all__ = ["TOLERANCE_SHARE", "CrossCheck", "TooLarge", "cross_check", "left_out"]
