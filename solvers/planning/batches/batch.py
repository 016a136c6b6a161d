"""A batch: a bounded set of moves that starts from a few GPUs of a running plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from solvers.planning.problem import Place


class BatchKind(StrEnum):
    """The way in which the GPUs of a group are planned again."""

    EMPTIED = "emptied"  # others carry their load
    SOLVED = "solved"  # again from nothing, together with some spare GPUs
    REFILLED = "refilled"  # a few of them at a time, from what runs there, together with some spare GPUs
    SHIFTED = "shifted"  # an empty GPU of the same pool runs what this one does
    DISPLACING = "displacing"  # others carry their load, for which the instances in `leaving` give way


@dataclass(frozen=True, slots=True, order=True)
class BatchGroup:
    """A few GPUs in use, and what becomes of them.

    Instances in `leaving`, which run elsewhere, are displaced. A group that is shifted makes room; it may save nothing.
    """

    places: tuple[Place, ...]
    kind: BatchKind
    leaving: tuple[str, ...] = ()  # ids of instances
    seed: int = 0  # of a refill

    @property
    def makes_room(self) -> bool:
        """True if it serves others, and need not save anything itself."""
        return self.kind is BatchKind.SHIFTED


GroupRow: TypeAlias = tuple[BatchGroup, ...]
WHOLE: GroupRow = ()  # of a plan that starts from no group: it moves whatever it likes


@dataclass(frozen=True, slots=True)
class MoveLimit:
    """How many services batches may move beside those that may move anyhow."""

    own: frozenset[str] = frozenset()
    most: int = 0
    whole: Mapping[str, str] = field(default_factory=dict)  # the services of parts, by name of the part

    def allows(self, moved: Collection[str]) -> bool:
        """Returns whether all of these services may move."""
        return len({self.whole.get(name, name) for name in moved} - self.own) <= self.most


@dataclass(frozen=True, slots=True)
class Batch:
    """The moves of one or more groups, one after the other: what they save an hour, and what they cost."""

    groups: GroupRow
    saved_per_hour: float  # of GPUs
    churn: float
    relief_per_hour: float = 0.0  # the price of the unserved load that they serve
    effort: float = 0.0  # the price of its starts, moves and resizes beside the churn

    @property
    def gain_per_hour(self) -> float:
        return self.saved_per_hour + self.relief_per_hour

    @property
    def price(self) -> float:
        """Returns what it must be worth."""
        return self.churn + self.effort

    @property
    def places(self) -> frozenset[Place]:
        return frozenset(place for group in self.groups for place in group.places)
