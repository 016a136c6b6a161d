"""Finds who pays for a GPU at each moment, in time that grows with what is claimed and not with its square."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import TypeAlias

from app.ledger.facts import Usage

HANDED_OVER = 2  # copies of an instance at a time: one that comes, one that goes

Latest: TypeAlias = list[tuple[int, str, Usage]]  # a heap; the copy that began last comes first


class Holders:
    """The copies that pay, for moments in ascending order: of each instance at most the last two that began."""

    def __init__(self, usage: Sequence[Usage]) -> None:
        self._coming = sorted(usage, key=attrgetter("start", "id"), reverse=True)
        self._ends = [(interval.stop, interval.instance) for interval in usage]
        heapify(self._ends)
        self._begun: dict[str, Latest] = {}
        self._paying: dict[str, Sequence[Usage]] = {}
        self._holders: tuple[Usage, ...] = ()

    def at(self, moment: int) -> tuple[Usage, ...]:
        """Returns the copies that pay from this moment until the next start or stop, by id."""
        changed = set()
        while self._coming and self._coming[-1].start <= moment:
            copy = self._coming.pop()
            heappush(self._begun.setdefault(copy.instance, []), (-copy.start, copy.id, copy))
            changed.add(copy.instance)
        while self._ends and self._ends[0][0] <= moment:
            changed.add(heappop(self._ends)[1])
        if changed:
            for instance in changed:
                self._paying[instance] = _last_begun(self._begun.get(instance, []), moment)
                if not self._paying[instance]:
                    del self._paying[instance]
            self._holders = tuple(sorted((copy for some in self._paying.values() for copy in some), key=_id))
        return self._holders


def _last_begun(begun: Latest, moment: int) -> Sequence[Usage]:
    """Returns the copies that began last and still run; those that have ended leave the heap for good."""
    found: Latest = []
    while begun and len(found) < HANDED_OVER:
        latest = heappop(begun)
        if latest[2].stop > moment:
            found.append(latest)
    for copy in found:
        heappush(begun, copy)
    return [copy for _, _, copy in found]


def _id(interval: Usage) -> str:
    return interval.id
