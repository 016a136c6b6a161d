"""What the solver's process does with an order; it keeps one plan warm to follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import solvers.planning.jobs  # noqa: F401 (a first plan may place jobs: their loops are read with the rest)
from app.control.domain.decision import RecipeKind, SolveOutcome, SolverAnswer
from app.control.solve.aside import Aside
from app.control.solve.orders import Again, Follow, Prepare, Solve, followed, prepared, solved, solved_again, told
from app.manifests.model import JSON
from solvers.compiled import read_all
from solvers.planning.workers import Worker, gather

if TYPE_CHECKING:
    from solvers.planning.replan import Replanner


class Serving:
    """Answers orders, one after the other."""

    def __init__(self) -> None:
        read_all()  # what makes a first plan
        import solvers.planning.replan  # noqa: F401 (what follows it)

        read_all(waits=False)
        self._warm: Replanner | None = None
        self._base = 0

    def answer(self, order: Solve | Again | Prepare | Follow | Aside) -> object:
        """Whatever is wrong in a solver is in the answer."""
        match order:
            case Aside():
                return order.answered()
            case Solve():
                return solved(order)
            case Again():
                return solved_again(order)
            case Prepare():
                return self._prepare(order)
            case Follow():
                return self._follow(order)

    def _prepare(self, order: Prepare) -> SolverAnswer:
        self._warm, self._base = None, order.base
        try:
            self._warm = prepared(order)
        except Exception as error:  # told with the answer to who asks it to follow
            return SolverAnswer(SolveOutcome.WRONG, None, told(error), {"kind": RecipeKind.FOLLOW})
        return SolverAnswer(SolveOutcome.SOLVED, None)  # who asked has the plan

    def _follow(self, order: Follow) -> SolverAnswer:
        """In a fork, which is spent thereby: what is warm here stays as it was prepared."""
        recipe: dict[str, JSON] = {"kind": RecipeKind.FOLLOW, "rates": dict(order.rates)}
        if self._warm is None or self._base != order.base:
            return SolverAnswer(SolveOutcome.CRASHED, None, "what was made ready to follow is lost", recipe)
        answers: Iterator[SolverAnswer] = gather([Worker("follower", _once(self._warm, order))], None)
        return next(answers, SolverAnswer(SolveOutcome.CRASHED, None, "the follower died", recipe))


def _once(warm: Replanner, order: Follow) -> Iterator[SolverAnswer]:
    yield followed(warm, order)
