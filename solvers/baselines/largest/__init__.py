"""Every instance on the largest GPU type: what a team does that buys one kind of GPU for everything.

A service runs on the type with most memory of those that it may run on, and on no other. Its instances have the shape
of which the least share of GPUs carries its load: beside neighbours, where its part of what presses on a GPU counts as
well, or with a whole GPU. They share GPUs by first fit, the largest first.
"""

from __future__ import annotations

from solvers.baselines.largest.plan import plan

__all__ = ["plan"]
