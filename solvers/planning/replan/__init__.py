"""A running plan that follows its problem: what must change changes, and nothing else."""

from __future__ import annotations

from solvers.planning.replan.replanner import Replanned, Replanner

__all__ = ["Replanned", "Replanner"]
