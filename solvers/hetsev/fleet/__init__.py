"""HetSev as the planner of a live fleet: its integer program, its heuristic over time and its placement, together."""

from __future__ import annotations

from solvers.hetsev.fleet.delta import METHOD, FleetDelta, add_missing
from solvers.hetsev.fleet.plan import plan

__all__ = ["METHOD", "FleetDelta", "add_missing", "plan"]
