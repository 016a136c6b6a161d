"""InSS as the planner of a live fleet: batches first; GPUs and SM% change only where no batch is enough."""

from __future__ import annotations

from solvers.inss.fleet.plan import plan

__all__ = ["plan"]
