"""Sets a knob and reads it back, because a successful call does not prove that the setting is in force."""

from __future__ import annotations

import time
from typing import Any

import pynvml

from agents.devices.nvml.binding import Binding
from agents.devices.nvml.originals import Original, Originals
from agents.devices.nvml.reading import IDLE, THROTTLED, UNLISTED, clock_reasons, describe_holder, sm_clock_mhz
from agents.devices.nvml.troubles import read_if_reported
from agents.devices.nvml.writer import DEFAULT_MODE, EXCLUSIVE_PROCESS_MODE, POWER_STEP_MW, Writer
from agents.seams.device import Ability, Applied, DeviceError, GpuDevice, Trouble

CLOCK_STEP_MHZ = 15.0  # NVML may report a clock one step away from the one that was set
SETTLE_SECONDS = 1.0
PAUSE_SECONDS = 0.02


def holds(mhz: float, read_mhz: float, reasons: int) -> bool:
    """Checks whether a clock read back fits a lock at `mhz`: it is lower only if the GPU is throttled or idle."""
    if abs(read_mhz - mhz) <= CLOCK_STEP_MHZ:
        return True
    return read_mhz < mhz and bool(reasons & (THROTTLED | IDLE))


class GpuKnobs:
    """The three knobs of every GPU, and their original values."""

    def __init__(self, binding: Binding, writer: Writer, originals: Originals, settle_seconds: float) -> None:
        self._binding = binding
        self._writer = writer
        self._originals = originals
        self._settle_seconds = settle_seconds

    def lock_clock(self, gpu: GpuDevice, mhz: int) -> Applied:
        if Ability.LOCK_CLOCKS not in gpu.abilities:
            raise DeviceError(Trouble.NOT_SUPPORTED, gpu.uuid, "the clock cannot be locked")
        if mhz not in gpu.clocks_mhz:
            allowed = f"{gpu.clocks_mhz[0]}..{gpu.clocks_mhz[-1]}"
            raise DeviceError(Trouble.OUT_OF_RANGE, gpu.uuid, f"{mhz} MHz is not one of its clocks, {allowed} MHz")
        # NVML has no getter for a lock, and a matching clock does not prove one, so the lock is always written.
        self._keep(gpu.uuid, Original(clock_locked=True))
        self._writer.lock_clock(gpu.uuid, mhz)
        until = time.monotonic() + self._settle_seconds
        while True:
            clock, reasons = self._binding.call(gpu.uuid, "read the clock", _clock)
            if clock is None:
                return Applied(mhz, None)
            if holds(mhz, clock, reasons):
                return Applied(mhz, clock)
            if time.monotonic() >= until:
                raise DeviceError(Trouble.NOT_APPLIED, gpu.uuid, f"clock locked at {mhz} MHz, but {clock} MHz is read")
            time.sleep(PAUSE_SECONDS)

    def free_clock(self, gpu: GpuDevice) -> Applied:
        if Ability.LOCK_CLOCKS not in gpu.abilities:
            raise DeviceError(Trouble.NOT_SUPPORTED, gpu.uuid, "the clock cannot be locked")
        self._writer.reset_clock(gpu.uuid)
        return Applied(None, None)

    def cap_power(self, gpu: GpuDevice, watts: float | None) -> Applied:
        if Ability.CAP_POWER not in gpu.abilities:
            raise DeviceError(Trouble.NOT_SUPPORTED, gpu.uuid, "the power cannot be capped")
        wanted_w = gpu.power_default_w if watts is None else watts
        if not gpu.power_min_w <= wanted_w <= gpu.power_max_w:
            allowed = f"{gpu.power_min_w:g}..{gpu.power_max_w:g} W"
            raise DeviceError(Trouble.OUT_OF_RANGE, gpu.uuid, f"a cap of {wanted_w:g} W is outside {allowed}")
        applied_w = self._set_power(gpu.uuid, round(wanted_w * 1000)) / 1000
        return Applied(watts, applied_w)

    def exclusive(self, gpu: GpuDevice, wanted: bool) -> Applied:
        if Ability.COMPUTE_MODE not in gpu.abilities:
            raise DeviceError(Trouble.NOT_SUPPORTED, gpu.uuid, "the compute mode cannot be set")
        held = self._binding.call(gpu.uuid, "look who holds it", describe_holder) if wanted else ""
        is_own = held == UNLISTED and self._originals.of(gpu.uuid).compute_mode is not None
        if held and not is_own:
            raise DeviceError(Trouble.FOREIGN, gpu.uuid, held)
        mode = self._set_mode(gpu.uuid, EXCLUSIVE_PROCESS_MODE if wanted else DEFAULT_MODE)
        return Applied(float(wanted), float(mode == EXCLUSIVE_PROCESS_MODE))

    def restore(self) -> None:
        """Restores every GPU that was changed, even if others fail; then raises the first error."""
        failed: list[DeviceError] = []
        for uuid in self._originals.changed():
            original = self._originals.of(uuid)
            try:
                if original.clock_locked:
                    self._writer.reset_clock(uuid)
                if original.power_mw is not None:
                    self._set_power(uuid, original.power_mw)
                if original.compute_mode is not None:
                    self._set_mode(uuid, original.compute_mode)
                self._originals.forget(uuid)
            except DeviceError as error:
                failed.append(error)
            except OSError as error:  # it will be restored once more, which does no harm
                failed.append(
                    DeviceError(Trouble.UNKNOWN, uuid, f"cannot record that the settings were restored: {error}")
                )
        if failed:
            raise failed[0]

    def _keep(self, uuid: str, knob: Original) -> None:
        try:
            self._originals.keep(uuid, knob)
        except OSError as error:
            what = f"nothing was changed; the original setting cannot be saved: {error}"
            raise DeviceError(Trouble.UNKNOWN, uuid, what) from error

    def _set_power(self, uuid: str, milliwatts: int) -> int:
        limit = self._binding.call(uuid, "read the power limit", pynvml.nvmlDeviceGetPowerManagementLimit)
        if limit != milliwatts:
            self._keep(uuid, Original(power_mw=limit))
            self._writer.set_power_mw(uuid, milliwatts)
        limit, enforced = self._binding.call(uuid, "read the power limit back", _power_limits)
        # A lower limit may be enforced for a hot or weak part of the board; a higher one means there is no cap.
        in_force = limit if enforced is None else enforced
        if abs(limit - milliwatts) > POWER_STEP_MW or in_force > milliwatts + POWER_STEP_MW:
            said_mw = f"{limit} mW is read, {in_force} mW enforced"
            raise DeviceError(Trouble.NOT_APPLIED, uuid, f"power limit set to {milliwatts} mW, but {said_mw}")
        return int(in_force)

    def _set_mode(self, uuid: str, mode: int) -> int:
        was = self._binding.call(uuid, "read the compute mode", pynvml.nvmlDeviceGetComputeMode)
        if was == mode:
            return int(was)
        self._keep(uuid, Original(compute_mode=was))
        self._writer.set_compute_mode(uuid, mode)
        now = self._binding.call(uuid, "read the compute mode back", pynvml.nvmlDeviceGetComputeMode)
        if now != mode:
            raise DeviceError(Trouble.NOT_APPLIED, uuid, f"compute mode set to {mode}, but {now} is read")
        return int(now)


def _clock(handle: Any) -> tuple[float | None, int]:
    return sm_clock_mhz(handle), clock_reasons(handle) or 0


def _power_limits(handle: Any) -> tuple[int, int | None]:
    limit = int(pynvml.nvmlDeviceGetPowerManagementLimit(handle))
    return limit, read_if_reported(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
