"""The answers: batches with their proof, or why there are none."""

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
class NoBatches:
    """No valid batches were found: SM% or GPUs must change (InSS's case 2)."""

    reason: str


Outcome: TypeAlias = Batches | NoBatches
