"""Quick steps of a problem and a plan alone, by any solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.ports import FollowingSolver
from app.control.fast import CapacityNeed, QuickStep, find_quick_step
from app.control.fast.ladder import SECONDS
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


class Silent:
    """A solver that has no answer."""

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        return SolverAnswer(SolveOutcome.OUT_OF_TIME)


def quick_step(
    problem: Problem, plan: Plan, needs: Sequence[CapacityNeed], solver: FollowingSolver, *, strict: bool = False,
    elsewhere: Mapping[str, float] | None = None,
) -> QuickStep | None:  # fmt: skip
    return find_quick_step(problem, plan, needs, solver, strict=strict, seconds=SECONDS, elsewhere=elsewhere or {})
