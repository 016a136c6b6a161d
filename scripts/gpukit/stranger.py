"""A client of MPS that the agent did not start: says what it sees of the GPU, writes where it may not, or fills it.

A process of its own (`python -m scripts.gpukit.stranger see|fault|hold GIB`), because a fault ends every context of
it. It prints one line, and ends with its standard input.
"""

from __future__ import annotations

import ctypes
import sys

from agents.programs.serve.cuda import CudaDriver, CudaError

GIB = 2**30
LEAST_BYTES = 2**22
PTX = """
.version 6.0
.target sm_70
.address_size 64

.visible .entry astray()
{
  .reg .b64 %d;
  .reg .b32 %r;
  mov.u64 %d, 16;
  mov.u32 %r, 1;
  st.global.u32 [%d], %r;
  ret;
}
"""


def write_astray(driver: CudaDriver) -> str:
    """Runs a kernel that writes to an address which no one has; returns what the driver says to it."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX.encode("ascii")))
    driver.do("cuModuleGetFunction", ctypes.byref(function), module, b"astray")
    try:
        driver.do(
            "cuLaunchKernel", function, *[ctypes.c_uint(size) for size in (1, 1, 1, 1, 1, 1, 0)], None, None, None
        )
        driver.do("cuCtxSynchronize")
    except CudaError as error:
        return str(error)
    return "nothing"


def hold_all_but(driver: CudaDriver, left_gib: float) -> str:
    """Takes the GPU's memory until only so much is free; returns how much it has."""
    held, pointer = 0, ctypes.c_uint64()
    largest = _free_bytes(driver)
    while (size := min(largest, _free_bytes(driver) - int(left_gib * GIB))) >= LEAST_BYTES:
        try:
            driver.do("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
            held += size
        except CudaError:
            largest = size // 2  # what is free is not in one piece, or has another owner since
    return f"{held / GIB:.3f} GiB"


def _free_bytes(driver: CudaDriver) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def main(wanted: str, left_gib: str = "0") -> int:
    try:
        driver = CudaDriver()
        driver.use()
        match wanted:
            case "fault":
                print(write_astray(driver), flush=True)
            case "hold":
                print(hold_all_but(driver, float(left_gib)), flush=True)
            case _:
                print(driver.sm_count(), flush=True)
    except CudaError as error:
        print(error, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
