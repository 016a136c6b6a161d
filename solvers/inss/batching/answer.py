"""What comes back: batches with their certificate, or who has none and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from solvers.proof import Proof


@dataclass(frozen=True, slots=True)
class Batches:
    """A right batch for every model."""

    batches: Mapping[str, int]
    proof: Proof


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
