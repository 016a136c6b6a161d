"""Verbs that read files and ask no server: called as `main` does, or as whole processes that are measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

# A fleet of two GPUs and one service that half of one carries.
FLEET = """\
apiVersion: gpuwright/v1
kind: GpuType
metadata: {name: big}
spec: {memoryGib: 16, smCount: 80, pricePerHour: 2, idleW: 40, maxW: 300, clocksMhz: [600, 1200]}
---
apiVersion: gpuwright/v1
kind: Node
metadata: {name: n1}
spec: {gpuType: big, gpus: 2, cpuCores: 16, memoryGib: 64}
---
apiVersion: gpuwright/v1
kind: Model
metadata: {name: m}
spec: {variants: [{name: v, accuracy: 0.8}]}
---
apiVersion: gpuwright/v1
kind: Profile
metadata: {name: p}
spec:
  {model: m, variant: v, gpuType: big, memoryGib: {1: 1, 4: 2}, pressure: 0.4, sensitivity: 0.2,
   latencyMs: {1: {20: 20, 80: 8}, 4: {20: 32, 80: 12}}}
---
apiVersion: gpuwright/v1
kind: Service
metadata: {name: search, tenant: shop}
spec: {model: m, slo: {latencyMs: 200, percentile: 98}, ratePerSecond: 20}
"""


class Process(NamedTuple):
    """A whole process that has ended."""

    code: int
    out: str
    err: str
    peak_mb: float


# A process counts the most memory of its parent as its own: this one is small, whatever the test run has become.
STARTER = """\
import os, subprocess, sys
started = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
_, status, usage = os.wait4(started.pid, 0)
started.returncode = os.waitstatus_to_exitcode(status)
with open(sys.argv[1], "w") as told:
    told.write(f"{started.returncode} {usage.ru_maxrss}")
"""


def process(folder: Path, *words: str) -> Process:
    """`gpuwright` as its own process, and the most memory it had."""
    out, err, told = folder / "out", folder / "err", folder / "told"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        command = [sys.executable, "-c", STARTER, str(told), sys.executable, "-m", "cli.main", *words]
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, check=True)
    code, kilobytes = told.read_text().split()
    return Process(int(code), out.read_text(), err.read_text(), int(kilobytes) / 1024)
