"""The two clocks of an agent: one that measures, and one that tells the date; and the boot that the first is of."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path


def seconds() -> float:
    """Seconds since this machine started: the same for every process, and no one can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def date() -> datetime:
    """The date as this machine has it, which may be wrong, and may jump."""
    return datetime.now(UTC)


def boot_id() -> str:
    """The kernel's name of the time since it was started: `seconds`, PIDs and start times mean something within it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
