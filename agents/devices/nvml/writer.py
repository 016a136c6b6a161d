"""Who writes to a GPU: the process itself as root, or the privileged helper on its behalf.

The driver lets root alone change clocks, power limits and compute modes. Everything that decides, reads and reads
back is on the near side of this seam; on the far side are these four verbs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agents.devices.nvml.binding import Binding

# NVML's numbers of the compute modes that may be set; 1 is no longer supported by any driver.
DEFAULT_MODE = 0
PROHIBITED_MODE = 2
EXCLUSIVE_PROCESS_MODE = 3
POWER_STEP_MW = 1000  # boards round: what is read back may be so far beside what was set


class Writer(Protocol):
    """Each verb writes once, or raises DeviceError; whether it took effect is for the caller to read."""

    def lock_clock(self, uuid: str, mhz: int) -> None: ...

    def reset_clock(self, uuid: str) -> None: ...

    def set_power_mw(self, uuid: str, milliwatts: int) -> None: ...

    def set_compute_mode(self, uuid: str, mode: int) -> None: ...


class DirectWriter:
    """This process writes by itself, which the driver allows root alone."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def lock_clock(self, uuid: str, mhz: int) -> None:
        nvml = self._binding.nvml
        self._binding.call(uuid, f"lock the clock at {mhz} MHz", nvml.nvmlDeviceSetGpuLockedClocks, mhz, mhz)

    def reset_clock(self, uuid: str) -> None:
        self._binding.call(uuid, "free the clock", self._binding.nvml.nvmlDeviceResetGpuLockedClocks)

    def set_power_mw(self, uuid: str, milliwatts: int) -> None:
        nvml = self._binding.nvml
        what = f"set the power limit to {milliwatts} mW"
        self._binding.call(uuid, what, nvml.nvmlDeviceSetPowerManagementLimit, milliwatts)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        nvml = self._binding.nvml
        self._binding.call(uuid, f"set compute mode {mode}", nvml.nvmlDeviceSetComputeMode, mode)
