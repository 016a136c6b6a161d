"""The settings of a simulated GPU and its true state, as no driver shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SetValues:
    """The settings that an agent changes and restores."""

    locked_mhz: int | None
    cap_w: float
    exclusive: bool


@dataclass(frozen=True, slots=True)
class GpuTruth:
    """The true state of one GPU at this instant."""

    settings: SetValues
    power_w: float
    peak_w: float  # the highest so far
    energy_j: float  # since the driver was loaded
    load: float
