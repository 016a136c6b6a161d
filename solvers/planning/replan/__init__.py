"""Keeps a running plan in step with its problem: changes what must change, and nothing else."""

from __future__ import annotations

from solvers.planning.replan.replanner import Replanner

__all__ = ["Replanner"]
