"""Reads the limits that MPS gives a client from its environment, before it opens the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.seams.mps_variables import MEMORY_LIMIT_VARIABLE, SM_PERCENT_VARIABLE, VISIBLE_DEVICES_VARIABLE


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits that a client reads from its environment before it opens the device."""

    folder: Path
    uuid: str
    sm_percent: float
    memory_gib: float | None


def read_limits(environ: Mapping[str, str]) -> ClientLimits | None:
    """Returns None if the environment names no pipe directory."""
    folder = environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
    if not folder:
        return None
    percent = environ.get(SM_PERCENT_VARIABLE, "") or "100"
    limit = environ.get(MEMORY_LIMIT_VARIABLE, "")
    uuid = environ.get(VISIBLE_DEVICES_VARIABLE, "").partition(",")[0].strip()
    return ClientLimits(Path(folder), uuid, float(percent), memory_limit_gib(limit) if limit else None)


def memory_limit_gib(text: str) -> float:
    """Returns the limit of device 0 in `0=2048M` or `0=1G,1=2G`."""
    for part in text.split(","):
        device, _, amount = part.strip().partition("=")
        if device == "0" and amount[-1:] in ("G", "M") and amount[:-1].isdecimal():
            return int(amount[:-1]) / (1 if amount[-1] == "G" else 1024)
    raise ValueError(f"{MEMORY_LIMIT_VARIABLE} {text!r} has no limit of device 0 in G or M")
