"""The agent's two clocks: one for durations, one for dates; and the boot that the first belongs to."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path


def seconds() -> float:
    """Returns the seconds since this machine booted: the same for every process, and never set back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def date() -> datetime:
    """Returns this machine's date, which may be wrong and may jump."""
    return datetime.now(UTC)


def boot_id() -> str:
    """Returns the kernel's name of this boot; `seconds`, PIDs and start times are comparable only within one boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
