"""Writes to a GPU: the process itself as root, or the root helper on its behalf.

The driver lets only root change clocks, power limits and compute modes. All decisions, reads and read-backs stay on
this side of the interface; behind it are these four verbs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agents.devices.nvml.binding import Binding

# NVML's numbers of the compute modes that may be set; no driver supports 1 any more.
DEFAULT_MODE = 0
PROHIBITED_MODE = 2
EXCLUSIVE_PROCESS_MODE = 3
POWER_STEP_MW = 1000  # boards round, so the value read back may differ by this much


class Writer(Protocol):
    """Each verb writes once, or raises DeviceError; the caller reads whether it took effect."""

    def lock_clock(self, uuid: str, mhz: int) -> None: ...

    def reset_clock(self, uuid: str) -> None: ...

    def set_power_mw(self, uuid: str, milliwatts: int) -> None: ...

    def set_compute_mode(self, uuid: str, mode: int) -> None: ...


class DirectWriter:
    """Writes directly, which the driver allows only root."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def lock_clock(self, uuid: str, mhz: int) -> None:
        nvml = self._binding.nvml
        self._binding.call(uuid, f"lock the clock at {mhz} MHz", nvml.nvmlDeviceSetGpuLockedClocks, mhz, mhz)

    def reset_clock(self, uuid: str) -> None:
        self._binding.call(uuid, "release the clock", self._binding.nvml.nvmlDeviceResetGpuLockedClocks)

    def set_power_mw(self, uuid: str, milliwatts: int) -> None:
        nvml = self._binding.nvml
        what = f"set the power limit to {milliwatts} mW"
        self._binding.call(uuid, what, nvml.nvmlDeviceSetPowerManagementLimit, milliwatts)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        nvml = self._binding.nvml
        self._binding.call(uuid, f"set compute mode {mode}", nvml.nvmlDeviceSetComputeMode, mode)
