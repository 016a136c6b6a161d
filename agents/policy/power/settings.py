"""The tuning of the power loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """Morak's bands: a move may cost watts only below alpha x cap, and latency only below beta x SLO."""

    alpha: float = 0.95
    beta: float = 0.9
    late_periods: int = 2  # over the SLO in a row before a knob moves
    calm_periods: int = 3  # with both limits kept before a knob returns
    longest_wait_periods: int = 300  # of calm: each return that did not last doubles the wait up to this
    broken_periods: int = 3  # with a limit broken before a re-partition is requested

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 < value <= 1:
                raise ValueError(f"{name} {value:g} is outside 0..1")
