"""Keeps since when each service was saturated, spare or short of room, from one of HetSev's plans to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from solvers.hetsev.scaling.controller import ScalingWatch
from solvers.planning.problem import Knowledge


@dataclass(slots=True)
class FleetMemory:
    """The moments, in seconds, that the heuristic waits from; `now` is None where time does not matter."""

    now: float | None
    watches: dict[str, ScalingWatch] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)  # since when an instance had no place

    @classmethod
    def recall(cls, knowledge: Knowledge, now: datetime | None) -> FleetMemory:
        over, spare = (_moments(knowledge, name) for name in ("overSince", "spareSince"))
        watches = {name: ScalingWatch(over.get(name), spare.get(name)) for name in {*over, *spare}}
        return cls(now.timestamp() if now else None, watches, _moments(knowledge, "waitingSince"))

    def watch(self, service: str) -> ScalingWatch:
        return self.watches.get(service, ScalingWatch())

    def waited_seconds(self, service: str) -> float:
        return 0.0 if self.now is None else max(0.0, self.now - self.waiting.get(service, self.now))

    def wait(self, services: set[str]) -> None:
        """Notes which services have an instance without a place."""
        at = 0.0 if self.now is None else self.now
        self.waiting = {name: self.waiting.get(name, at) for name in sorted(services)}

    def knowledge(self) -> Knowledge:
        if self.now is None:
            return {}
        over = {name: watch.over_since for name, watch in sorted(self.watches.items()) if watch.over_since is not None}
        spare = {
            name: watch.spare_since for name, watch in sorted(self.watches.items()) if watch.spare_since is not None
        }
        return {"overSince": over, "spareSince": spare, "waitingSince": self.waiting}


def _moments(knowledge: Knowledge, name: str) -> dict[str, float]:
    found: Mapping[str, float] = knowledge.get(name, {})
    return {service: float(at) for service, at in found.items()}
