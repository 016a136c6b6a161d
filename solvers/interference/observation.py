"""An observation on a shared GPU: one resident, its neighbours, and how much slower they made it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite


class WrongObservation(ValueError):
    """An observation with an SM% or a slowdown that cannot be."""


@dataclass(frozen=True, slots=True, order=True)
class Neighbour:
    """A model that runs on the same GPU."""

    model: str
    sm_percent: int = 100


@dataclass(frozen=True, slots=True)
class SharedRun:
    """A model beside its neighbours. `against`: its slowdown is relative to the same mix, all at that SM%."""

    model: str
    sm_percent: int
    neighbours: tuple[Neighbour, ...]
    against: int | None = None  # None: against the model alone at its SM%

    def __post_init__(self) -> None:
        for percent in (self.sm_percent, *(each.sm_percent for each in self.neighbours)):
            if not 1 <= percent <= 100:
                raise WrongObservation(f"smPercent {percent} of {self.model}'s run is outside 1..100")

    @property
    def models(self) -> frozenset[str]:
        return frozenset((self.model, *(each.model for each in self.neighbours)))

    @property
    def mix(self) -> tuple[str, ...]:
        """Returns the models of the whole mix, up to order."""
        return tuple(sorted((self.model, *(each.model for each in self.neighbours))))


@dataclass(frozen=True, slots=True)
class SlowdownObservation:
    """A measured slowdown: time beside neighbours / time alone (or `against`)."""

    run: SharedRun
    slowdown: float
    samples: int = 1

    def __post_init__(self) -> None:
        if not (isfinite(self.slowdown) and self.slowdown > 0):
            raise WrongObservation(f"slowdown {self.slowdown:g} of {self.run.model} is not a number above 0")
        if self.samples < 1:
            raise WrongObservation(f"{self.samples} samples of {self.run.model}; at least 1 is allowed")
