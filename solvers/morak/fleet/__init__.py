"""Morak as the planner of a live fleet: GPUs split by knees, with batches and clocks under caps and a budget."""

from __future__ import annotations

from solvers.morak.fleet.plan import plan

__all__ = ["plan"]
