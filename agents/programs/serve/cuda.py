"""The part of the CUDA driver's interface that a process needs: its multiprocessors, a context, some memory."""

from __future__ import annotations

import ctypes
from typing import Any

_MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


class CudaError(Exception):
    """The driver's refusal, with CUDA's number."""


def sm_count() -> int | None:
    """Returns the multiprocessors of the first device, under MPS the process's share; None without a driver."""
    try:
        driver = _driver()
        return _sm_count(driver, _device(driver))
    except CudaError:
        return None


class CudaContext:
    """A real context that computes nothing: a client of MPS, with its limits, which holds memory until it ends."""

    def __init__(self, memory_gib: float) -> None:
        driver = _driver()
        device = _device(driver)
        context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
        _do(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        _do(driver, "cuCtxSetCurrent", context)
        if memory_gib > 0:
            _do(driver, "cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(int(memory_gib * 2**30)))
        self.sm_count = _sm_count(driver, device)


class CudaDriver:
    """The driver with a context of this process on the first device, under MPS a client with its limits."""

    def __init__(self) -> None:
        self._driver = _driver()
        self._device = _device(self._driver)
        self._context = ctypes.c_void_p()
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)

    def use(self) -> None:
        """Makes the context that of the calling thread."""
        self.do("cuCtxSetCurrent", self._context)

    def sm_count(self) -> int:
        return _sm_count(self._driver, self._device)

    def do(self, name: str, *words: Any) -> None:
        """Calls a function of the driver; raises CudaError."""
        _do(self._driver, name, *words)


def _driver() -> Any:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError("no CUDA driver is installed") from error
    _do(driver, "cuInit", ctypes.c_uint(0))
    return driver


def _device(driver: Any) -> ctypes.c_int:
    device = ctypes.c_int()
    _do(driver, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    return device


def _sm_count(driver: Any, device: ctypes.c_int) -> int:
    count = ctypes.c_int()
    _do(driver, "cuDeviceGetAttribute", ctypes.byref(count), ctypes.c_int(_MULTIPROCESSOR_COUNT), device)
    return count.value


def _do(driver: Any, name: str, *words: Any) -> None:
    code = getattr(driver, name)(*words)
    if code:
        raise CudaError(f"CUDA error {code} from {name}")
