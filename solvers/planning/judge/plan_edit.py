"""The difference between two plans, in instances and jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from solvers.planning.plan import Plan, Unplaced, Unserved
from solvers.planning.problem import Instance, PlacedJob

# All of an instance that the judge reads, but its rate: not its id, and not what is predicted of it
_judged = attrgetter(
    "service", "node", "gpu", "gpus", "variant", "batch", "batch_timeout_ms", "sm_percent", "memory_gib", "clock_mhz"
)
RATE_DIGITS = 9  # after the point: rates that were scaled back and forth are equal so far


@dataclass(frozen=True, slots=True)
class PlanEdit:
    """Turns one plan into another. A retuned instance stops as it was and starts as it is."""

    stop: tuple[Instance, ...] = ()
    start: tuple[Instance, ...] = ()
    stop_jobs: tuple[PlacedJob, ...] = ()
    start_jobs: tuple[PlacedJob, ...] = ()
    unserved: Mapping[str, Unserved | None] = field(default_factory=dict)  # None: no longer
    unplaced: Mapping[str, Unplaced | None] = field(default_factory=dict)


def edit_between(before: Plan, after: Plan) -> PlanEdit:
    """Returns the edit that turns one plan into the other; an instance that stays is the same object in both."""
    was, now = set(map(id, before.instances)), set(map(id, after.instances))
    ran, runs = set(before.jobs), set(after.jobs)
    unserved = {entry.service: entry for entry in after.unserved}
    unplaced = {entry.job: entry for entry in after.unplaced}
    return PlanEdit(
        stop=tuple(instance for instance in before.instances if id(instance) not in now),
        start=tuple(instance for instance in after.instances if id(instance) not in was),
        stop_jobs=tuple(placed for placed in before.jobs if placed not in runs),
        start_jobs=tuple(placed for placed in after.jobs if placed not in ran),
        unserved={name: unserved.get(name) for name in (*unserved, *(entry.service for entry in before.unserved))},
        unplaced={name: unplaced.get(name) for name in (*unplaced, *(entry.job for entry in before.unplaced))},
    )


def reuse_known(known: Iterable[Instance], instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """Returns the instances, with the very objects of those that are known: equal but for id and predictions."""
    by_value: dict[tuple[object, ...], list[Instance]] = defaultdict(list)
    for instance in known:
        by_value[_value_of(instance)].append(instance)
    return tuple(same.pop() if (same := by_value.get(_value_of(instance))) else instance for instance in instances)


def _value_of(instance: Instance) -> tuple[object, ...]:
    return (_judged(instance), round(instance.rate_per_second, RATE_DIGITS))
