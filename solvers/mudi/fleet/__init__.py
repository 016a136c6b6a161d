"""Mudi as the planner of a live fleet: a GPU for each instance, the smallest SM%, and training on what is left."""

from __future__ import annotations

from solvers.mudi.fleet.plan import plan

__all__ = ["plan"]
