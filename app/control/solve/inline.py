"""The solver in this very process, by work alone: for tests and simulations, where the same must come each time."""

from __future__ import annotations

from collections.abc import Mapping

from app.control.domain.decision import RecipeKind, SolveOutcome, SolverAnswer
from app.control.domain.ports import Meanwhile, just_wait
from app.control.solve.orders import (
    Again,
    Follow,
    Prepare,
    Solve,
    followed,
    prepared,
    solved,
    solved_again,
    spell_error,
)
from app.manifests.model import JSON
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

WORK = 12  # steps where none are asked for: the first dive, and the LP's better prices


class Inline:
    """A Solver without process or clock. It never forks: its caller may have threads."""

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        """The plan of so many steps; seconds do not count."""
        meanwhile()
        return solved(Solve(problem, None, WORK if work is None else work, seed), alone=True)

    def again(self, problem: Problem, recipe: Mapping[str, JSON], *, seconds: float) -> SolverAnswer:
        """The plan that a recipe makes."""
        return solved_again(Again(problem, recipe))

    def prepare(self, problem: Problem, plan: Plan) -> None:
        """Nothing is kept warm."""

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        """The plan with what new rates change in it."""
        try:
            replanner = prepared(Prepare(problem, plan))
        except Exception as error:  # as in the solver's process
            return SolverAnswer(SolveOutcome.WRONG, None, spell_error(error), {"kind": RecipeKind.FOLLOW})
        return followed(replanner, Follow(rates))

    def close(self) -> None:
        """There is nothing to end."""
