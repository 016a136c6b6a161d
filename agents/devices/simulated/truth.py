"""What is set on a simulated GPU, and what it does at this instant: seen from behind, not through a driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SetValues:
    """What an agent changes on a device, and puts back."""

    locked_mhz: int | None
    cap_w: float
    exclusive: bool


@dataclass(frozen=True, slots=True)
class GpuTruth:
    """One GPU at this instant, as nobody sees it through a driver."""

    settings: SetValues
    power_w: float
    peak_w: float  # the highest there was
    energy_j: float  # since the driver was loaded
    load: float
