"""The names of the lab's baselines; entry points in pyproject.toml offer them to every verb that compares planners."""

from __future__ import annotations

GPULET = "gpulet"
GSLICE = "gslice"
IGNITER = "igniter"
ORION = "orion"
MUXFLOW = "muxflow"
BASELINES = (GPULET, GSLICE, IGNITER, ORION, MUXFLOW)
