"""The seam between the root helper and the driver: what it reads before it writes, and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agents.devices.nvml.writer import Writer


@dataclass(frozen=True, slots=True)
class AllowedSettings:
    """What one device supports; empty and 0 where it does not say, and then nothing is allowed."""

    clocks_mhz: frozenset[int]
    power_min_mw: int
    power_max_mw: int


class RootDevices(Writer, Protocol):
    """The devices of this machine, as root sees them. Every call may raise DeviceError."""

    def allowed(self, uuid: str) -> AllowedSettings: ...

    def power_mw(self, uuid: str) -> int:
        """The limit that is set; another may be in force when the board or the chassis has one of its own."""

    def compute_mode(self, uuid: str) -> int:
        """NVML's number."""
