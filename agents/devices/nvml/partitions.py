"""The devices at one of NVML's indexes: the GPU, or its MIG devices where it is divided. None is ever created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pynvml

from agents.devices.nvml.troubles import GONE, read_if_reported, trouble


@dataclass(frozen=True, slots=True)
class NvmlDeviceHandle:
    """A device that models can run on."""

    uuid: str
    handle: Any
    gpu_uuid: str = ""  # of the GPU that it is a part of
    gpu_handle: Any = None


def list_devices(index: int) -> tuple[NvmlDeviceHandle, ...]:
    """Returns what runs models at this index; nothing for a GPU in MIG mode that has not been divided.

    A GPU in MIG mode runs nothing itself. A mode that takes effect only after a reset does not count yet.
    """
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    current, _ = read_if_reported(pynvml.nvmlDeviceGetMigMode, handle) or (pynvml.NVML_DEVICE_MIG_DISABLE, 0)
    if current != pynvml.NVML_DEVICE_MIG_ENABLE:
        return (NvmlDeviceHandle(uuid, handle),)
    found = []
    for number in range(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            found.append(NvmlDeviceHandle(str(pynvml.nvmlDeviceGetUUID(part)), part, uuid, handle))
        except pynvml.NVMLError as error:
            if trouble(error) in GONE:
                raise  # any other: no device has this number
    return tuple(found)
