"""OLTunes as the planner of a live fleet: candidates (O2), affinity (O4), variants (O6), the idlest GPU first (O7)."""

from __future__ import annotations

from solvers.oltunes.fleet.plan import plan

__all__ = ["plan"]
