"""A solver that remembers the plans that it found since it was last asked for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.control.domain.decision import SolverAnswer
from app.control.domain.ports import Meanwhile, PlanSolver, just_wait
from solvers.planning.batches.batch import GroupRow, MoveLimit
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(slots=True)
class RememberingSolver:
    """Passes every order on, and keeps the plans of the answers."""

    inner: PlanSolver
    found: list[Plan] = field(default_factory=list)

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        return self._remember(self.inner.solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile))

    def prepare(self, problem: Problem, plan: Plan) -> None:
        self.inner.prepare(problem, plan)

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        return self._remember(self.inner.follow(problem, plan, rates, seconds=seconds))

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        return self._remember(self.inner.add(problem, seconds=seconds))

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
        return self.inner.find_batches(problem, plan, known, tries=tries, seed=seed, seconds=seconds, limit=limit)

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        return self._remember(self.inner.make_batches(problem, plan, groups, seconds=seconds))

    def take(self) -> tuple[Plan, ...]:
        """Returns the plans found since the last call."""
        found, self.found = tuple(self.found), []
        return found

    def _remember(self, answer: SolverAnswer) -> SolverAnswer:
        if answer.plan is not None:
            self.found.append(answer.plan)
        return answer
