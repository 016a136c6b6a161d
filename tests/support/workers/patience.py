"""How long a test may take before it counts as hanging."""

from __future__ import annotations

import os

import pytest

SECONDS, SLOW_SECONDS = 60.0, 600.0


def seconds_of(item: pytest.Item) -> float:
    """What the test or the command line says; else a minute, ten for a slow one, more where others want the cores."""
    given = item.config.getvalue("timeout")
    if marker := item.get_closest_marker("timeout"):
        return float(marker.args[0])
    if given is not None:
        return float(given)
    cores = len(os.sched_getaffinity(0))
    return (SLOW_SECONDS if item.get_closest_marker("slow") else SECONDS) * max(1.0, os.getloadavg()[0] / cores)
