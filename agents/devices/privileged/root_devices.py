"""The devices as the root helper uses them: what it reads before it writes, and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agents.devices.nvml.writer import Writer


@dataclass(frozen=True, slots=True)
class AllowedSettings:
    """The settings that a device supports; empty and 0 where it reports none, and then nothing is allowed."""

    clocks_mhz: frozenset[int]
    power_min_mw: int
    power_max_mw: int


class RootDevices(Writer, Protocol):
    """The devices of this machine, accessed as root. Every call may raise DeviceError."""

    def allowed(self, uuid: str) -> AllowedSettings: ...

    def power_mw(self, uuid: str) -> int:
        """Returns the configured limit; the board or the chassis may enforce a lower one."""

    def compute_mode(self, uuid: str) -> int:
        """Returns NVML's number of the mode."""
