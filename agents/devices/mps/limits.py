"""The environment that a client of MPS needs before it opens the device: its GPU, its daemon, its limits."""

from __future__ import annotations

import math
from pathlib import Path

from agents.seams.device import DeviceError, Trouble
from agents.seams.mps_variables import MEMORY_LIMIT_VARIABLE, SM_PERCENT_VARIABLE, VISIBLE_DEVICES_VARIABLE


def client_environment(uuid: str, pipe: Path, sm_percent: float, memory_gib: float) -> dict[str, str]:
    """Returns CUDA's own variables. The lower of these and the daemon's limits count; the daemon's stay at the maximum.

    MPS takes whole MiB, so the limit is rounded up: otherwise a copy that needs exactly its share would never start.
    """
    if not 0 < sm_percent <= 100:
        raise DeviceError(Trouble.OUT_OF_RANGE, uuid, f"SM share {sm_percent:g} is outside 0..100")
    mebibytes = math.ceil(memory_gib * 1024 - 1e-6) if math.isfinite(memory_gib) else 0
    if mebibytes < 1 or memory_gib * 1024 < 1:
        raise DeviceError(Trouble.OUT_OF_RANGE, uuid, f"memory limit {memory_gib:g} GiB is below 1 MiB")
    return {
        VISIBLE_DEVICES_VARIABLE: uuid,  # by UUID: an index points to another device once one is lost
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        SM_PERCENT_VARIABLE: f"{sm_percent:g}",
        MEMORY_LIMIT_VARIABLE: f"0={mebibytes}M",  # device 0: the only one the daemon shows
    }
