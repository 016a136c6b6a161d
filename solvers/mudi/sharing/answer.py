"""The answers: SM% with a proof of how small they are, or the residents that cannot fit and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from solvers.proof import Proof


@dataclass(frozen=True, slots=True)
class SmShares:
    """SM% under which every resident meets its SLO."""

    percents: Mapping[str, int]
    proof: Proof


@dataclass(frozen=True, slots=True)
class SharingRelaxation:
    """One change that is enough on its own, checked by applying it."""

    resident: str
    what: Literal["sloMs", "ratePerSecond", "outstanding", "leaves"]
    value: float  # the new value; 0 if it leaves
    change: float  # relative to the old value; 1 if it leaves

    def __str__(self) -> str:
        if self.what == "leaves":
            return f"{self.resident} leaves this GPU"
        direction = "raised" if self.what == "sloMs" else "lowered"
        return f"{self.what} of {self.resident} {direction} to {self.value:g}"


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No SM% were found: `is_proved` if none exist, otherwise because the search ran out of work."""

    cannot_fit: tuple[str, ...]
    reason: str
    relaxations: tuple[SharingRelaxation, ...]  # the change of least relative size, or all residents that must leave
    is_proved: bool
    method: str
    work: int


Outcome: TypeAlias = SmShares | NoRoom
