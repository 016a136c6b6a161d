"""Reads one GPU, and lists the processes on it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from agents.devices.mps.processes import NAME as MPS_NAME
from agents.devices.nvml.troubles import GONE, read_if_reported, trouble
from agents.seams.device import Ability, GpuProcess, GpuReading

GIB = 2**30
IDLE = 0x1
REASONS = {0x4: "power_cap", 0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "power_brake"}
THROTTLED = sum(REASONS)
UNLISTED = "it is exclusive, and the driver does not say to which process"
UNREADABLE = "?"  # no process has this name
_TRIES = 3  # the list grew between the calls for its size and its content


def read_gpu(handle: Any, abilities: frozenset[Ability]) -> GpuReading:
    """Reads the GPU, leaving out what it was found not to report."""

    def able(ability: Ability, function: Any) -> Any | None:
        return read_if_reported(function, handle) if ability in abilities else None

    utilization = able(Ability.READ_UTILIZATION, pynvml.nvmlDeviceGetUtilizationRates)
    power_mw = able(Ability.READ_POWER, pynvml.nvmlDeviceGetPowerUsage)
    return GpuReading(
        memory_used_gib=pynvml.nvmlDeviceGetMemoryInfo(handle).used / GIB,
        utilization_percent=None if utilization is None else float(utilization.gpu),
        power_w=None if power_mw is None else power_mw / 1000,
        energy_mj=able(Ability.READ_ENERGY, pynvml.nvmlDeviceGetTotalEnergyConsumption),
        temperature_c=read_if_reported(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        sm_clock_mhz=sm_clock_mhz(handle),
        clock_reasons=names_of(clock_reasons(handle) or 0),
        ecc_uncorrected=able(Ability.READ_ECC, _ecc_uncorrected),
    )


def sm_clock_mhz(handle: Any) -> float | None:
    return read_if_reported(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM)


def clock_reasons(handle: Any) -> int | None:
    """Returns the bits that explain the current clock; drivers before 535 use an older name for the call."""
    bits = read_if_reported(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    return bits if bits is not None else read_if_reported(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)


def names_of(bits: int) -> frozenset[str]:
    return frozenset(name for bit, name in REASONS.items() if bits & bit)


def ecc_uncorrected(handle: Any) -> int | None:
    """Returns the count since the driver was loaded."""
    return read_if_reported(_ecc_uncorrected, handle)


def list_processes(handle: Any) -> tuple[GpuProcess, ...]:
    """Lists the processes. Those under MPS have a list of their own, and the driver decides which one a process is in.

    The MPS server also holds a context for all of its clients; it is left out.
    """
    # Versioned names: the plain ones raise something other than NVMLError for a missing symbol.
    calls = (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3)
    memory: dict[int, int | None] = {}
    answered = False
    for function in calls:
        try:
            listed = _grown(function, handle)
        except pynvml.NVMLError as error:
            if trouble(error) in GONE or (function is calls[-1] and not answered):
                raise
            continue
        answered = True
        for process in listed:
            known = memory.get(process.pid)
            used = process.usedGpuMemory
            memory[process.pid] = used if known is None else max(known, used or 0)
    return tuple(
        GpuProcess(pid, None if used is None else used / GIB)
        for pid, used in sorted(memory.items())
        if _belongs_to_somebody(pid)
    )


def describe_holder(handle: Any) -> str:
    """Returns words for who has an exclusive device to itself; empty if MPS or nobody has it, or if it is shared.

    The mode alone says nothing: it stays when the process that set it has ended, or has lost its record.
    """
    if pynvml.nvmlDeviceGetComputeMode(handle) != pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
        return ""
    listed = read_if_reported(partial(_grown, pynvml.nvmlDeviceGetComputeRunningProcesses_v3), handle)
    if listed is None:
        return UNLISTED
    names = {process.pid: _read_name(process.pid) for process in listed}
    if any(name.startswith(MPS_NAME) for name in names.values()):
        return ""
    holder = min((pid for pid, name in names.items() if name), default=0)
    return f"process {holder} has it to itself, outside MPS" if holder else ""


def _belongs_to_somebody(pid: int) -> bool:
    name = _read_name(pid)
    return bool(name) and not name.startswith(MPS_NAME)


def _read_name(pid: int) -> str:
    """Returns the name of a process; empty for a dead one, which the driver lists for a while.

    Others' processes may be hidden from this user: these live on, without a name.
    """
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return "" if _is_gone(pid) else UNREADABLE


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _ecc_uncorrected(handle: Any) -> int:
    kind, since = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))


def _grown(function: Any, handle: Any) -> Any:
    for attempt in range(_TRIES):
        try:
            return function(handle)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or attempt == _TRIES - 1:
                raise
    raise AssertionError
