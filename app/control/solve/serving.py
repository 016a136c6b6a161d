"""Carries out orders in the solver's process, and keeps one plan warm to follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import solvers.planning.jobs  # noqa: F401 (a first plan may place jobs, so their loops are loaded with the rest)
from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.solve.aside import Aside
from app.control.solve.orders import (
    FindBatches,
    Follow,
    MakeBatches,
    Prepare,
    Repeat,
    SearchMemory,
    Solve,
    batches_found,
    batches_made,
    follow_rates,
    prepare_replanner,
    repeat_plan,
    solve_order,
    spell_error,
)
from solvers.compiled import read_all
from solvers.planning.workers import Worker, gather

if TYPE_CHECKING:
    from solvers.planning.parts.follow import PlanFollower


class Serving:
    """Answers orders, one after the other."""

    def __init__(self) -> None:
        self._warm: PlanFollower | None = None
        self._base = 0
        self._memory = SearchMemory()

    def read_loops(self) -> None:
        """Loads the loops, or waits until they are compiled, so that no answer waits for that."""
        read_all()  # the loops of a first plan
        import solvers.planning.replan  # noqa: F401 (the loops that follow a plan)

        read_all(waits=False)

    def answer(self, order: Solve | Repeat | Prepare | Follow | FindBatches | MakeBatches | Aside[object]) -> object:
        """Returns the answer; a solver's failure is part of it."""
        match order:
            case Aside():
                return order.answered()
            case Solve():
                return solve_order(order, memory=self._memory)
            case Repeat():
                return repeat_plan(order)
            case Prepare():
                return self._prepare(order)
            case Follow():
                return self._follow(order)
            case FindBatches():
                return batches_found(order)
            case MakeBatches():
                return batches_made(order)

    def _prepare(self, order: Prepare) -> SolverAnswer:
        self._warm, self._base = None, order.base
        try:
            self._warm = prepare_replanner(order)
        except Exception as error:  # the next order to follow gets this as its answer
            return SolverAnswer(SolveOutcome.WRONG, None, spell_error(error))
        return SolverAnswer(SolveOutcome.SOLVED, None)  # the caller has the plan already

    def _follow(self, order: Follow) -> SolverAnswer:
        """Follows in a forked process, so that the prepared plan here stays unchanged."""
        if self._warm is None or self._base != order.base:
            return SolverAnswer(SolveOutcome.CRASHED, None, "the prepared plan was lost")
        answers: Iterator[SolverAnswer] = gather([Worker("follower", _once(self._warm, order))], None)
        return next(answers, SolverAnswer(SolveOutcome.CRASHED, None, "the forked solver died"))


def _once(warm: PlanFollower, order: Follow) -> Iterator[SolverAnswer]:
    yield follow_rates(warm, order)
