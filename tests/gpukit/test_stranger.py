"""A client that takes the memory of the GPU leaves as much as it was told, also where no piece is that large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.house.tree import ROOT
from tests.support.nvml_stub import needs_gcc

# 10 GiB are free, in pieces of 3 GiB at most.
DRIVER = """
#include <stdint.h>
#include <stddef.h>
static size_t left = (size_t)10 << 30;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemGetInfo_v2(size_t *room, size_t *total) { *room = left; *total = (size_t)80 << 30; return 0; }
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    if (bytes > (size_t)3 << 30 || bytes > left) return 2;
    left -= bytes;
    return 0;
}
"""


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize(("left", "held"), [("0.0625", 9.9375), ("2", 8.0), ("11", 0.0)])
def test_all_but_so_much_is_held(left: str, held: float, tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "scripts.gpukit.stranger", "hold", left],
        env={"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        input="",
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert abs(float(ran.stdout.split()[0]) - held) < 0.005 and "GiB" in ran.stdout
