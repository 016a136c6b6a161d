"""Three systems that share GPUs by SM%, as InSS compares itself with them: gpulet, GSLICE and iGniter.

Ours, in favour of all: what an instance carries alone is read from the table that judges plans, so that they know
queueing; gateways send no more than keeps the SLO; where GPUs run out, what is left of one is used; and a plan is
kept while it carries all rates, or while no rate has moved by a tenth. Services that one GPU cannot carry have
several instances, each on a GPU of its own.
"""

from __future__ import annotations

from lab.baselines.sharing.gpulet import plan_gpulet
from lab.baselines.sharing.gslice import plan_gslice, plan_gslice_largest_first
from lab.baselines.sharing.igniter import plan_igniter

__all__ = ["plan_gpulet", "plan_gslice", "plan_gslice_largest_first", "plan_igniter"]
