"""The numbers that the power loop is tuned by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """Morak's bands: a knob may cost watts below alpha x cap only, and latency below beta x SLO only."""

    alpha: float = 0.95
    beta: float = 0.9
    late_periods: int = 2  # over the SLO for so long before anything moves for it
    calm_periods: int = 3  # both limits kept for so long before a knob returns
    longest_wait_periods: int = 300  # calm ones: each return that did not last doubles the wait, up to here
    broken_periods: int = 3  # with a limit broken, before a re-partition is asked for

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 < value <= 1:
                raise ValueError(f"{name} {value:g} is outside 0..1")
