"""A batch: a bounded set of moves that starts from a few GPUs of a running plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from solvers.planning.problem import Place


@dataclass(frozen=True, slots=True, order=True)
class BatchGroup:
    """A few GPUs in use: emptied, so that others carry their load, or solved again together with some spare ones.

    Instances in `leaving`, which run elsewhere, move to these GPUs too: such a group makes room and may save nothing.
    """

    places: tuple[Place, ...]
    is_solved: bool
    leaving: tuple[str, ...] = ()  # ids of instances


GroupRow: TypeAlias = tuple[BatchGroup, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """The moves of one or more groups, one after the other: what they save an hour, and their price."""

    groups: GroupRow
    saved_per_hour: float
    churn: float

    @property
    def places(self) -> frozenset[Place]:
        return frozenset(place for group in self.groups for place in group.places)
