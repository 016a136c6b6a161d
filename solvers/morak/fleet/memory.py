"""Remembers which GPUs were divided again at their nodes' request, and how much slower they count since."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from solvers.planning.problem import Knowledge, Place

HELD_SECONDS = 300.0  # before the same GPU is divided again: the new shares have to start first
KEPT_SECONDS = 3600.0  # so long a GPU counts as slower than profiled
SLOWER_SHARE = 0.1  # for each request that was answered


@dataclass(slots=True)
class DividedGpus:
    """The moments at which GPUs were divided again, in seconds; `now` is None where time does not matter."""

    now: float | None
    moments: dict[Place, list[float]] = field(default_factory=dict)

    @classmethod
    def recall(cls, knowledge: Knowledge, now: datetime | None) -> DividedGpus:
        stated: Mapping[str, list[float]] = knowledge.get("divided", {})
        at = now.timestamp() if now else None
        found = {}
        for name, moments in stated.items():
            node, _, gpu = name.rpartition("/")
            if kept := [moment for moment in moments if at is not None and at - moment < KEPT_SECONDS]:
                found[node, int(gpu)] = kept
        return cls(at, found)

    def divide(self, requested: Collection[Place]) -> set[Place]:
        """Returns the GPUs to divide now: those whose nodes ask for it, unless that happened a moment ago."""
        at = self.now
        if at is None:
            return set(requested)
        found = {place for place in requested if at - max(self.moments.get(place, [0.0])) >= HELD_SECONDS}
        for place in found:
            self.moments.setdefault(place, []).append(at)
        return found

    def margin(self, place: Place) -> float:
        """Returns how many times as long as profiled a batch takes there, and how many times the watts."""
        return (1 + SLOWER_SHARE) ** len(self.moments.get(place, ()))

    def knowledge(self) -> Knowledge:
        if not self.moments:
            return {}
        return {"divided": {f"{node}/{gpu}": moments for (node, gpu), moments in sorted(self.moments.items())}}
