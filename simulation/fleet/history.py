"""The log of a simulation: every change sent to a node, and how each service fared meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from agents.contract.assignments import AssignedInstance, Assignment
from simulation.fleet.fleet import SimulatedFleet
from simulation.serving.totals import Total

What = Literal["start", "stop", "move", "resize", "retune"]
CHANGES: tuple[What, ...] = get_args(What)


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """One changed instance. A new rate alone is a weight at the gateway, and no change."""

    at: float
    node: str
    instance: str
    owner: str  # tenant/name
    what: What


def list_changes(at: float, before: Assignment | None, after: Assignment) -> Iterator[AssignmentChange]:
    """Yields the changes that an assignment makes on its node."""
    were = {instance.id: instance for instance in before.instances} if before else {}
    are = {instance.id: instance for instance in after.instances}
    clocks = [
        {gpu.index: gpu.clock_mhz for gpu in assignment.gpus} if assignment else {} for assignment in (before, after)
    ]
    for name in sorted({*were, *are}):
        was, is_ = were.get(name), are.get(name)
        instance = is_ or was
        assert instance is not None
        owner = instance.owner
        if was is None or is_ is None:
            yield AssignmentChange(at, after.node, name, owner, "start" if was is None else "stop")
        elif was.gpu != is_.gpu:
            yield AssignmentChange(at, after.node, name, owner, "move")
        elif (was.variant, was.sm_percent, was.memory_gib) != (is_.variant, is_.sm_percent, is_.memory_gib):
            yield AssignmentChange(at, after.node, name, owner, "resize")
        elif _knobs(was) != _knobs(is_) or clocks[0].get(was.gpu) != clocks[1].get(is_.gpu):
            yield AssignmentChange(at, after.node, name, owner, "retune")


def _knobs(instance: AssignedInstance) -> tuple[float, float]:
    return (instance.batch.planned if instance.batch else 0.0, round(instance.batch_timeout_ms, 9))


@dataclass(frozen=True, slots=True)
class Mark:
    """Totals at one moment; two of them give the figures in between."""

    at: float
    services: Mapping[str, tuple[int, int, int]]  # answered, within the SLO, failed


@dataclass(slots=True)
class History:
    """Everything since the beginning."""

    changes: list[AssignmentChange] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def mark(self, fleet: SimulatedFleet) -> Mark:
        made = Mark(fleet.clock.seconds, {name: _read_total(total) for name, total in fleet.services.items()})
        self.marks.append(made)
        return made

    def since(self, seconds: float) -> list[AssignmentChange]:
        return [change for change in self.changes if change.at >= seconds]

    def kinds(self, seconds: float) -> Counter[str]:
        """Counts the changes since then by what they are."""
        return Counter(change.what for change in self.since(seconds))


def count_attained_shares(before: Mark, after: Mark) -> dict[str, float]:
    """Returns each service's share of requests within its SLO between two marks; 1 without requests."""
    found = {}
    for name in after.services:
        answered, within, failed = (a - b for a, b in zip(after.services[name], before.services[name], strict=True))
        found[name] = within / (answered + failed) if answered + failed else 1.0
    return found


def _read_total(total: Total) -> tuple[int, int, int]:
    return (total.answered, total.within, total.errors)
