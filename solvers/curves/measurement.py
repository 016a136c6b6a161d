"""The measurements of a model on a GPU, and the settings at which it can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """The way one copy runs: the requests of a batch, its share of the SMs, and the GPU's clock."""

    batch: int
    sm_percent: float
    clock_mhz: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch {self.batch} is below 1")
        if not 0.0 < self.sm_percent <= 100.0:
            raise ValueError(f"sm_percent {self.sm_percent:g} is outside 0..100")
        if self.clock_mhz < 1:
            raise ValueError(f"clock_mhz {self.clock_mhz} is below 1")


@dataclass(frozen=True, slots=True)
class Measurement:
    """The mean execution time of one batch at a setting, the standard deviation of single batches, and how many ran."""

    batch: int
    sm_percent: float
    clock_mhz: int
    latency_ms: float
    spread_ms: float
    samples: int

    def __post_init__(self) -> None:
        if not 0.0 < self.latency_ms < float("inf"):
            raise ValueError(f"latency_ms {self.latency_ms:g} is not a positive number")
        if not 0.0 <= self.spread_ms < float("inf"):
            raise ValueError(f"spread_ms {self.spread_ms:g} is below 0")
        if self.samples < 1:
            raise ValueError(f"samples {self.samples} is below 1")
        self.setting  # noqa: B018 (refuses what is no setting)

    @property
    def setting(self) -> Setting:
        return Setting(self.batch, self.sm_percent, self.clock_mhz)

    @property
    def noise(self) -> float:
        """The standard error of the mean, as a share of it."""
        return self.spread_ms / sqrt(self.samples) / self.latency_ms
