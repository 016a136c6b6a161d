"""Where others join on: who answers the planner's questions, and who knows what is asked of services."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from agents.contract import AssignedInstance
from app.control.domain.decision import Answer
from app.control.domain.readings import Reading, Seen, Trial
from app.control.domain.snapshot import Correction, Declared, Expected
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

Meanwhile: TypeAlias = Callable[[], object]  # what an asker does until its answer is there


def nothing() -> None:
    """An asker just waits."""


class Solving(Protocol):
    """Who answers questions: a process with a deadline, or the same in this one for simulations."""

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = nothing
    ) -> Answer: ...
    def prepare(self, problem: Problem, plan: Plan) -> None: ...
    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> Answer: ...


class Forecasting(Protocol):
    """Who says what is asked of services, and what will be."""

    def begin(self) -> None: ...
    def promise(self, declared: Sequence[Declared]) -> None: ...
    def look(self) -> Mapping[str, Seen]: ...
    def learn(self, epoch: int, problem: Problem, applied: Mapping[str, Correction]) -> bool: ...
    def keep(self) -> None: ...
    def of_jobs(self) -> Sequence[Reading]: ...
    def trials(self, wanted: Mapping[str, AssignedInstance]) -> Mapping[str, Trial]: ...
    def expect(
        self, declared: Mapping[str, float], planned: Mapping[str, float], ahead: Mapping[str, float], now: datetime
    ) -> Mapping[str, Expected]: ...
