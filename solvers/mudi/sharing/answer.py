"""What comes back: SM% with the proof of how small they are, or who cannot fit and the least that would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from solvers.proof import Proof


@dataclass(frozen=True, slots=True)
class SmShares:
    """SM% under which everyone meets its SLO."""

    percents: Mapping[str, int]
    proof: Proof


@dataclass(frozen=True, slots=True)
class SharingRelaxation:
    """One change, alone enough, checked by applying it."""

    resident: str
    what: Literal["sloMs", "ratePerSecond", "outstanding", "leaves"]
    value: float  # the new value; 0 where it leaves
    change: float  # relative to the old one; 1 where it leaves

    def __str__(self) -> str:
        if self.what == "leaves":
            return f"{self.resident} leaves this GPU"
        direction = "raised" if self.what == "sloMs" else "lowered"
        return f"{self.what} of {self.resident} {direction} to {self.value:g}"


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No SM% were found. `is_proved`: there are none; otherwise the search ran out of work."""

    cannot_fit: tuple[str, ...]
    reason: str
    relaxations: tuple[SharingRelaxation, ...]  # the one change of least relative size, or everyone who must leave
    is_proved: bool
    method: str
    work: int


Outcome: TypeAlias = SmShares | NoRoom
