"""The outcome of a cycle, as everything that is announced starts from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.control.domain.decision import Decision
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from solvers.planning.plan import Plan


@dataclass(frozen=True)
class CycleOutcome:
    """The result of a cycle. `plan` is the one in force, under the names that the problem uses."""

    snapshot: Snapshot
    question: Question
    plan: Plan
    decision: Decision | None = None  # of this cycle, where it made one
    changed_since_bound: str = ""  # what changed, besides rates, since the last bound was computed
    blamed: Mapping[str, str] = field(default_factory=dict)  # by service: the likely cause when the solver has no plan
