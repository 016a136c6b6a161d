"""The solver in the caller's process, bounded by work alone: for tests and simulations, which must be repeatable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.ports import Meanwhile, just_wait
from app.control.solve.adding import add_to_running
from app.control.solve.orders import (
    FindBatches,
    Follow,
    MakeBatches,
    Prepare,
    Repeat,
    Solve,
    batches_found,
    batches_made,
    follow_rates,
    prepare_replanner,
    repeat_plan,
    solve_order,
    spell_error,
)
from app.manifests.model import JSON
from solvers.planning.batches.batch import GroupRow, MoveLimit
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

WORK = 12  # steps if the caller gives none: the first dive, and the LP's better prices


@dataclass
class Inline:
    """A solver without process or clock. It never forks, since its caller may have threads."""

    bounds_of_others: bool = True  # whether it searches bounds of the plans of planners other than the joint one

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        """Returns the plan after so many steps; seconds do not count."""
        meanwhile()
        order = Solve(problem, None, WORK if work is None else work, seed, bounds_of_others=self.bounds_of_others)
        return solve_order(order, alone=True)

    def repeat(self, problem: Problem, counted: Mapping[str, JSON], *, seconds: float) -> SolverAnswer:
        """Returns the plan that was found by the work that was counted."""
        return repeat_plan(Repeat(problem, counted))

    def prepare(self, problem: Problem, plan: Plan) -> None:
        """Does nothing: no plan is kept warm here."""

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        """Returns the plan with the changes that new rates need."""
        try:
            replanner = prepare_replanner(Prepare(problem, plan))
        except Exception as error:  # as in the solver's process
            return SolverAnswer(SolveOutcome.WRONG, None, spell_error(error))
        return follow_rates(replanner, Follow(rates))

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        """Returns the running plan with what it leaves unserved."""
        return add_to_running(problem)

    def find_batches(
        self,
        problem: Problem,
        plan: Plan,
        known: Sequence[GroupRow],
        *,
        tries: int,
        seed: int,
        seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:
        """Returns batches of moves that make the plan cheaper."""
        return batches_found(FindBatches(problem, plan, known, tries, seed, limit=limit))

    def repeat_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], counted: Mapping[str, JSON], *, tries: int,
        seed: int, limit: MoveLimit | None = None,
    ) -> SolverAnswer:  # fmt: skip
        """Returns the batches that were found by the work that was counted."""
        checks = int(str(counted["checks"]))
        return batches_found(FindBatches(problem, plan, known, tries, seed, checks=checks, limit=limit))

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        """Returns the plan with the batches of these groups."""
        return batches_made(MakeBatches(problem, plan, groups))

    def close(self) -> None:
        """Does nothing: there is no process to end."""
