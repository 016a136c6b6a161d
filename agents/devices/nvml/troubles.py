"""Translates NVML's codes into ours, in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from agents.seams.device import DeviceError, Trouble

TROUBLES = {
    pynvml.NVML_ERROR_UNINITIALIZED: Trouble.NO_DRIVER,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: Trouble.OUT_OF_RANGE,
    pynvml.NVML_ERROR_NOT_SUPPORTED: Trouble.NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: Trouble.NO_PERMISSION,
    pynvml.NVML_ERROR_NOT_FOUND: Trouble.NOT_SUPPORTED,  # of samples: there are none
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Trouble.NO_DRIVER,
    pynvml.NVML_ERROR_TIMEOUT: Trouble.TIMEOUT,
    pynvml.NVML_ERROR_IRQ_ISSUE: Trouble.LOST,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Trouble.NO_DRIVER,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Trouble.NOT_SUPPORTED,  # an older driver, without the symbol
    pynvml.NVML_ERROR_GPU_IS_LOST: Trouble.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Trouble.LOST,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: Trouble.NO_PERMISSION,  # a cgroup or container forbids it
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Trouble.NO_DRIVER,  # upgraded without a reload
    pynvml.NVML_ERROR_NO_DATA: Trouble.NOT_SUPPORTED,
    pynvml.NVML_ERROR_FREQ_NOT_SUPPORTED: Trouble.OUT_OF_RANGE,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Trouble.NOT_SUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED: Trouble.NOT_SUPPORTED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: Trouble.LOST,
}
GONE = frozenset({Trouble.LOST, Trouble.TIMEOUT, Trouble.NO_DRIVER})  # no other call can succeed


def trouble(error: pynvml.NVMLError) -> Trouble:
    """Looks up by code: NVML's exceptions define equality without a hash, so they cannot be keys."""
    return TROUBLES.get(int(error.value), Trouble.UNKNOWN)


def translate(error: pynvml.NVMLError, uuid: str, what: str) -> DeviceError:
    return DeviceError(trouble(error), uuid, f"{what}: {error}")


def read_if_reported(function: Callable[..., Any], *arguments: Any) -> Any | None:
    """Returns the device's value, None where it reports none; a lost device still raises an error."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if trouble(error) in GONE:
            raise
        return None
