"""Records the outcomes of the solver: a timeout cannot be replayed from the problem alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from app.control.domain.decision import SolverAnswer
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


class FollowingSolver(Protocol):
    """The solver's short way from a plan to other rates."""

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer: ...


@dataclass(slots=True)
class RecordingSolver:
    """A solver whose outcomes are recorded in the order of its answers."""

    solver: FollowingSolver
    outcomes: list[str] = field(default_factory=list)

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        answer = self.solver.follow(problem, plan, rates, seconds=seconds)
        self.outcomes.append(str(answer.outcome))
        return answer
