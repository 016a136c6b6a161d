"""The answers: batches with their proof, or the models without a valid batch and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from solvers.proof import Proof


@dataclass(frozen=True, slots=True)
class Batches:
    """A valid batch for every model."""

    batches: Mapping[str, int]
    proof: Proof


@dataclass(frozen=True, slots=True)
class NeededChange:
    """One number and the value it would need to have."""

    of: str  # a model, or the GPU
    what: str
    value: float

    def __str__(self) -> str:
        return f"{self.what} of {self.of} {self.value:g}"


@dataclass(frozen=True, slots=True)
class NoBatches:
    """No valid batches were found: SM% or GPUs must change (InSS's case 2). `is_proved`: there are none."""

    cannot_run: tuple[str, ...]
    reason: str
    changes: tuple[NeededChange, ...]  # enough if all are made
    is_proved: bool
    work: int


Outcome: TypeAlias = Batches | NoBatches
