"""A client of MPS that the agent did not start: says what it sees of the GPU, or writes where it may not.

A process of its own (`python -m scripts.gpukit.stranger see|fault`), because a fault ends every context of it. It
prints one line, and ends with its standard input.
"""

from __future__ import annotations

import ctypes
import sys

from agents.programs.serve.cuda import CudaDriver, CudaError

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


def main(wanted: str) -> int:
    try:
        driver = CudaDriver()
        driver.use()
        print(write_astray(driver) if wanted == "fault" else driver.sm_count(), flush=True)
    except CudaError as error:
        print(error, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
