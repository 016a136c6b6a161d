"""Records what a solver answers while a decision is made, and gives the same answers again when it is replayed.

Out of time is no property of a problem, nor is a crash: they are on record. All else is found again by counted work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.control.domain.decision import Draft, SolveOutcome, SolverAnswer, SolverOrder
from app.control.domain.ports import BatchMaker, FollowingSolver, Meanwhile, PlanSolver, just_wait
from app.manifests.model import JSON
from solvers.planning.batches.batch import GroupRow, MoveLimit
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

REPEAT_SECONDS = 3600.0  # a guard against a fault: a replay counts steps and not time


class OtherOrder(Exception):
    """A solver is asked for something else than when the decision was made; the message says for what."""


class RepeatingSolver(FollowingSolver, BatchMaker, Protocol):
    """A solver that finds plans and batches again by the work that was counted."""

    def repeat(self, problem: Problem, counted: Mapping[str, JSON], *, seconds: float) -> SolverAnswer: ...
    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer: ...
    def repeat_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], counted: Mapping[str, JSON], *, tries: int,
        seed: int, limit: MoveLimit | None = None,
    ) -> SolverAnswer: ...  # fmt: skip


@dataclass(slots=True)
class RecordingSolver:
    """A solver whose answers are recorded in their order."""

    solver: PlanSolver
    drafts: list[Draft] = field(default_factory=list)

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        answer = self.solver.solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile)
        return self._record(SolverOrder.SOLVE, answer)

    def prepare(self, problem: Problem, plan: Plan) -> None:
        self.solver.prepare(problem, plan)

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        return self._record(SolverOrder.FOLLOW, self.solver.follow(problem, plan, rates, seconds=seconds))

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        return self._record(SolverOrder.ADD, self.solver.add(problem, seconds=seconds))

    def find_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], *, tries: int, seed: int, seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:  # fmt: skip
        answer = self.solver.find_batches(problem, plan, known, tries=tries, seed=seed, seconds=seconds, limit=limit)
        return self._record(SolverOrder.FIND_BATCHES, answer)

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        answer = self.solver.make_batches(problem, plan, groups, seconds=seconds)
        return self._record(SolverOrder.MAKE_BATCHES, answer)

    def _record(self, order: SolverOrder, answer: SolverAnswer) -> SolverAnswer:
        self.drafts.append(Draft(order, answer.outcome, answer.counted))
        return answer


class RecordedSolver:
    """A solver that answers as it did when the decision was made."""

    def __init__(self, solver: RepeatingSolver, drafts: Sequence[Draft]) -> None:
        self._solver = solver
        self._drafts = iter(drafts)

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        return self._repeat(
            SolverOrder.SOLVE, lambda counted: self._solver.repeat(problem, counted, seconds=REPEAT_SECONDS)
        )

    def prepare(self, problem: Problem, plan: Plan) -> None:
        """Does nothing: no plan is kept warm for a replay."""

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        return self._repeat(
            SolverOrder.FOLLOW, lambda _: self._solver.follow(problem, plan, rates, seconds=REPEAT_SECONDS)
        )

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        return self._repeat(SolverOrder.ADD, lambda _: self._solver.add(problem, seconds=REPEAT_SECONDS))

    def find_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], *, tries: int, seed: int, seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:  # fmt: skip
        return self._repeat(
            SolverOrder.FIND_BATCHES,
            lambda counted: self._solver.repeat_batches(
                problem, plan, known, counted, tries=tries, seed=seed, limit=limit
            ),
        )

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        return self._repeat(
            SolverOrder.MAKE_BATCHES,
            lambda _: self._solver.make_batches(problem, plan, groups, seconds=REPEAT_SECONDS),
        )

    def _repeat(self, order: SolverOrder, find: Callable[[Mapping[str, JSON]], SolverAnswer]) -> SolverAnswer:
        draft = next(self._drafts, None)
        if draft is None or draft.order is not order:
            then = draft.order if draft else "nothing more"
            raise OtherOrder(f"the solver is asked for {order} now, and was for {then}")
        return find(draft.counted) if draft.outcome is SolveOutcome.SOLVED else SolverAnswer(draft.outcome)
