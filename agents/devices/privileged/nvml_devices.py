"""The root helper's devices through NVML: each GPU has a thread, and each call a deadline."""

from __future__ import annotations

from agents.devices.nvml.binding import Binding
from agents.devices.nvml.troubles import read_if_reported
from agents.devices.nvml.writer import DirectWriter
from agents.devices.privileged.root_devices import AllowedSettings
from agents.seams.device import DeviceError, Trouble


class NvmlRootDevices(DirectWriter):
    """Reads what the helper must know before it writes."""

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self._allowed: dict[str, AllowedSettings] = {}

    def allowed(self, uuid: str) -> AllowedSettings:
        """Reads the limits once for each device, since they do not change."""
        if uuid not in self._allowed:
            self._enumerate(uuid)
            self._allowed[uuid] = self._binding.call(uuid, "read the supported settings", self._read_supported)
        return self._allowed[uuid]

    def power_mw(self, uuid: str) -> int:
        nvml = self._binding.nvml
        return int(self._binding.call(uuid, "read the power limit", nvml.nvmlDeviceGetPowerManagementLimit))

    def compute_mode(self, uuid: str) -> int:
        return int(self._binding.call(uuid, "read the compute mode", self._binding.nvml.nvmlDeviceGetComputeMode))

    def _read_supported(self, handle: object) -> AllowedSettings:
        nvml = self._binding.nvml
        memory_clocks = read_if_reported(nvml.nvmlDeviceGetSupportedMemoryClocks, handle) or ()
        clocks = {
            int(clock)
            for memory_clock in memory_clocks
            for clock in read_if_reported(nvml.nvmlDeviceGetSupportedGraphicsClocks, handle, memory_clock) or ()
        }
        low, high = read_if_reported(nvml.nvmlDeviceGetPowerManagementLimitConstraints, handle) or (0, 0)
        return AllowedSettings(frozenset(clocks), int(low), int(high))

    def _enumerate(self, uuid: str) -> None:
        """Finds a device that came back, or that was missing when the helper started."""
        try:
            self._binding.slot(uuid)
        except DeviceError as error:
            if error.trouble is not Trouble.LOST:
                raise
            self._binding.enumerate()
