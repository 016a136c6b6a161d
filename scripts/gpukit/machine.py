"""Asks NVML what the machine's first GPU is and how it is set, without changing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from agents.devices.nvml.troubles import read_if_reported


def read_machine() -> dict[str, Any]:
    """Returns driver, card and the settings that NVML reads; it has no getter for a lock of clocks."""
    try:
        pynvml.nvmlInit()
        if not pynvml.nvmlDeviceGetCount():
            return {"why_not": "NVML lists no GPU"}
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        cuda = read_if_reported(pynvml.nvmlSystemGetCudaDriverVersion_v2) or 0
        processes = read_if_reported(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        return {
            "card": str(pynvml.nvmlDeviceGetName(handle)),
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
            "processes": None if processes is None else len(processes),
            "settings": _read_settings(handle),
        }
    except pynvml.NVMLError as error:
        return {"why_not": f"NVML does not answer: {error}"}


def _read_settings(handle: Any) -> dict[str, int]:
    readers: dict[str, Callable[[Any], Any]] = {
        "power limit in mW": pynvml.nvmlDeviceGetPowerManagementLimit,
        "compute mode": pynvml.nvmlDeviceGetComputeMode,
        "persistence mode": pynvml.nvmlDeviceGetPersistenceMode,
        "SM clock for applications in MHz": lambda gpu: pynvml.nvmlDeviceGetApplicationsClock(
            gpu, pynvml.NVML_CLOCK_SM
        ),
        "MIG mode": lambda gpu: pynvml.nvmlDeviceGetMigMode(gpu)[0],
        "MIG mode after a reset": lambda gpu: pynvml.nvmlDeviceGetMigMode(gpu)[1],
    }
    read = {name: read_if_reported(reader, handle) for name, reader in readers.items()}
    return {name: int(value) for name, value in read.items() if value is not None}
