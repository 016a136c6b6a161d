"""Reads the share of a node's CPU cores that a copy has from its environment."""

from __future__ import annotations

import math
from collections.abc import Mapping

CORES = "GPUWRIGHT_CORES"  # 0.6: six tenths of one core's time
MEMORY_GIB = "GPUWRIGHT_MEMORY_GIB"


def threads_of(environment: Mapping[str, str]) -> int:
    """Returns how many threads can compute at once within the share; 0 if the process has none."""
    try:
        return max(1, math.ceil(float(environment[CORES])))
    except (KeyError, ValueError, OverflowError):
        return 0
