"""The numbers that the power loop is tuned by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Bands by Morak: a knob may cost watts below alpha x cap only, and latency below beta x SLO only."""

    alpha: float = 0.95
    beta: float = 0.9
    late_periods: int = 2  # over the SLO for so long before anything is moved for it
    calm_periods: int = 3  # both limits held for so long before a knob returns
    longest_wait: int = 600  # calm periods; each return that did not last doubles the wait up to here
    failures: int = 3  # broken periods after a move, until a re-partition is asked for
    idle_w: float = 0.0  # what the GPU draws with nothing to do

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if not 0 < value <= 1:
                raise ValueError(f"{name} {value:g} is outside 0..1")
