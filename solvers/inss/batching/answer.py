"""What comes back: batches with their certificate, or who has none and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Certificate:
    """How much the batches serve, and how much any could."""

    throughput_per_second: float
    bound_per_second: float
    method: str
    work: int  # combinations looked at

    @property
    def gap(self) -> float:
        return self.bound_per_second / self.throughput_per_second - 1 if self.throughput_per_second else 0.0


@dataclass(frozen=True, slots=True)
class Batches:
    """A right batch for every model."""

    batches: Mapping[str, int]
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class NeededChange:
    """One number, and what it would have to be."""

    of: str  # a model, or the GPU
    what: str
    value: float

    def __str__(self) -> str:
        return f"{self.what} of {self.of} {self.value:g}"


@dataclass(frozen=True, slots=True)
class NoBatches:
    """No right batches were found: SM% or places must change (InSS's case 2). `is_proved`: there are none."""

    cannot_run: tuple[str, ...]
    reason: str
    changes: tuple[NeededChange, ...]  # together enough
    is_proved: bool
    work: int


Outcome: TypeAlias = Batches | NoBatches
