"""Takes profiles from a physics as from GPUs: by few measurements, alone and beside neighbours."""

from __future__ import annotations

from simulation.profiling.world import COMPLETE, SIXTEEN, ProfilingEffort, profile_world

__all__ = ["COMPLETE", "SIXTEEN", "ProfilingEffort", "profile_world"]
