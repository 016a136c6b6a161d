"""How long a test waits for what will come: a guard against hanging, not an expectation of time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

BASE_SECONDS = 120.0  # nothing that a test waits for takes so long on a machine that does nothing else
CORES = len(os.sched_getaffinity(0))


def patience(seconds: float = BASE_SECONDS) -> float:
    """Returns the seconds to wait at most: as many times more as there is work for each core now."""
    return seconds * max(1.0, os.getloadavg()[0] / CORES)


def until(holds: Callable[[], object], what: str | Callable[[], object] = "", seconds: float = BASE_SECONDS) -> None:
    """Waits for something that will hold. The load is read again and again: it may come while we wait."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < patience(seconds), f"hung: {what() if callable(what) else what}"
        time.sleep(0.02)
