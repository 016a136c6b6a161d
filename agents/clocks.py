"""The two clocks of an agent: one that measures, and one that tells the date."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def seconds() -> float:
    """Seconds since this machine started: the same for every process, and no one can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def date() -> datetime:
    """The date as this machine has it, which may be wrong, and may jump."""
    return datetime.now(UTC)
