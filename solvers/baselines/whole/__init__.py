"""Three planners of GPUs given out whole: one-per-gpu, Melange, and time-sliced, which puts two pods on a GPU.

Both decide from today's rates. Ours, in favour of all: what an instance carries is read from the table
that judges plans, gateways send no more than keeps the SLO, and what runs on a GPU that still fits stays there.
"""

from __future__ import annotations

from solvers.baselines.whole.melange import plan_melange
from solvers.baselines.whole.one_per_gpu import plan_one_per_gpu
from solvers.baselines.whole.time_sliced import plan_time_sliced

__all__ = ["plan_melange", "plan_one_per_gpu", "plan_time_sliced"]
