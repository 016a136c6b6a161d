"""The difference between two plans, in instances and jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from solvers.planning.plan import Unplaced, Unserved
from solvers.planning.problem import Instance, PlacedJob


@dataclass(frozen=True, slots=True)
class PlanEdit:
    """Turns one plan into another. A retuned instance stops as it was and starts as it is."""

    stop: tuple[Instance, ...] = ()
    start: tuple[Instance, ...] = ()
    stop_jobs: tuple[PlacedJob, ...] = ()
    start_jobs: tuple[PlacedJob, ...] = ()
    unserved: Mapping[str, Unserved | None] = field(default_factory=dict)  # None: no longer
    unplaced: Mapping[str, Unplaced | None] = field(default_factory=dict)
